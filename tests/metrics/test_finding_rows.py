"""Which kernels is a finding about, and which of them are largest?"""

from __future__ import annotations

import numpy as np
from builders import draw, only_place

from perfdoctor.metrics.finding_rows import largest


def test_the_table_names_the_largest_first_and_leaves_out_what_has_no_time():
    place = only_place(draw(kernels="SSSDDDDDe", launched_us_before=50))
    rows = np.array([True, True, False])
    table = largest(place, rows, "label")
    assert [(name, count) for name, count, _ in table.rows] == [
        ("volta_dgemm_64x64_nn", 1.0),
        ("ampere_sgemm_128x64_tn", 1.0),
    ]
    assert [ns for *_, ns in table.rows] == [500_000, 300_000]

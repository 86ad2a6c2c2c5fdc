"""Which kernels follow each other, and which are largest?"""

from __future__ import annotations

import numpy as np
from builders import draw, only_place, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.sets import largest, stream_order


def place_of(kernels):
    (place,) = prepare(timeline(kernels=kernels)).places
    return place


def kernel(start: int, correlation: int, stream: int = 7):
    return {
        "start_ns": start,
        "end_ns": start + 10,
        "name": "k",
        "correlation": correlation,
        "stream": stream,
        "process": 1,
    }


def test_kernels_come_stream_by_stream():
    place = place_of([kernel(10, 1, stream=8), kernel(20, 2, stream=7), kernel(30, 3, stream=8)])
    assert stream_order(place).tolist() == [1, 0, 2]


def test_the_table_names_the_largest_first_and_leaves_out_what_has_no_time():
    place = only_place(draw(kernels="SSSDDDDDe", launched_us_before=50))
    rows = np.array([True, True, False])
    table = largest(place, rows, "label")
    assert [(name, count) for name, count, _ in table.rows] == [
        ("volta_dgemm_64x64_nn", 1.0),
        ("ampere_sgemm_128x64_tn", 1.0),
    ]
    assert [ns for *_, ns in table.rows] == [500_000, 300_000]

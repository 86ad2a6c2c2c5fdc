"""Has a rank more FLOP, or is it slower at as many?"""

from __future__ import annotations

from types import SimpleNamespace as Namespace

import numpy as np
import pytest

from perfdoctor.metrics.work import op_work


def test_a_slower_device_with_as_much_work_wins_all_of_it():
    places = [Namespace(compute=Namespace(total_ns=ns), units=1) for ns in (300, 100, 100)]
    assert explained(places, [30.0, 30.0, 30.0]) == 0
    assert explained(places, [45.0, 30.0, 30.0]) == pytest.approx(0.25)
    assert explained(places, [120.0, 30.0, 30.0]) == 1
    assert explained(places, [120.0, 30.0, None]) == 0  # nothing is known of one of them


def explained(places, flop) -> float:
    """`flop`: of each place, None where unknown."""
    work = {id(place): each for place, each in zip(places, flop, strict=True)}

    def of(place):
        known = np.array([work[id(place)] is not None])
        return Namespace(known=known, flop=np.array([work[id(place)] or np.nan]))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(op_work, "op_work", of)
        return op_work.explained_by_flop(places[0], places[1:])

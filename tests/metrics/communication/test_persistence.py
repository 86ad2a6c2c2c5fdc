"""Is a rank late again and again, or by chance?"""

from __future__ import annotations

import numpy as np
import pytest
from talking import talking

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.communication.persistence import Persistence, _upper_tail, persistence
from perfdoctor.metrics.communication.skew import skew


def of_rank(rank: int, more, *, parts: int = 1) -> Persistence:
    """Of one of two ranks that compute alike but for `more`, by step and rank."""
    drawn, _ = talking([20, 20], 1, steps=len(more), more=more, parts=parts)
    run = prepare(drawn)
    matched = skew(run.job)
    assert matched is not None
    return persistence(run.job.places, matched, np.array([matched.number(rank)]))


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_the_tail_of_students_t_is_the_one_of_the_tables(freedom, t):
    assert _upper_tail(t, freedom) == pytest.approx(0.025, rel=1e-3)


def test_a_rank_that_is_late_in_every_step_is_no_chance():
    found = of_rank(1, [[0, 10 + step % 4] for step in range(10)], parts=3)
    assert (found.late_in, found.compared, found.of_steps) == (10, 10, True)
    assert found.chance < 0.001


@pytest.mark.parametrize(
    "more",
    [
        [[0, 10] if step % 2 else [10, 0] for step in range(10)],  # by turns
        [[0, 200] if step == 4 else [2 * (step % 2), 1] for step in range(10)],  # once, and for long
        [[0, 10] if step < 5 else [8, 0] for step in range(10)],  # for a while, and then the other one
    ],
)
def test_a_rank_that_is_late_now_and_then_may_be_late_by_chance(more):
    assert of_rank(1, more).chance > 0.1


def test_nothing_is_known_from_two_steps():
    assert of_rank(1, [[0, 10], [0, 11]]).chance > 0.1

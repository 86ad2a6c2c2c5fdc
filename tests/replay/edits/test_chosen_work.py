"""Which pieces of work are chosen, inside the window and behind it?"""

from __future__ import annotations

import numpy as np
import pytest
from builders import draw, only_place
from msgspec.structs import replace

from perfdoctor.metrics.finding_rows import kernels_and_copies
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.replay.edits.chosen_work import chosen_of, work_rows

STEPS = 6


def place(window: int = STEPS, **drawn) -> Place:
    """Steps of three kernels of the same name and a copy; the window ends behind so many of the steps."""
    whole = only_place(
        draw(**{"kernels": " # # #   ", "copies": "       h ", "launched_us_before": 50, "repeat": STEPS, **drawn})
    )
    edges = whole.steps.bounds
    return replace(whole, window=Intervals.single(int(edges[0]), int(edges[min(window, edges.size - 1)])))


def kernels(of: Place, *positions: int) -> dict[tuple[int, int], np.ndarray]:
    """The kernels at these positions of each step in the window."""
    at = (of.kernels.start_ns - of.work.start_ns[0]) // 100_000 % 9
    return {(0, 0): np.isin(at // 2, positions)}


def starts(of: Place, rows: np.ndarray) -> list[int]:
    """When in its step each chosen piece begins, in units."""
    return [int(at) % 9 for at in (of.work.start_ns[rows] - of.work.start_ns[0]) // 100_000]


def test_what_is_chosen_in_the_window_is_chosen_as_work():
    one = place()
    rows = work_rows(one, ("kernels",), kernels(one, 1))
    assert starts(one, rows) == [2] * STEPS


@pytest.mark.parametrize("positions", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_behind_the_window_the_same_of_each_step_is_chosen(positions):
    one = place(window=3)
    assert len(one.kernels) < 3 * STEPS
    rows = work_rows(one, ("kernels",), kernels(one, *positions))
    assert starts(one, rows) == [2 * position for position in positions] * STEPS


def test_all_is_chosen_where_a_finding_does_not_choose():
    one = place(window=3)
    assert chosen_of(one, ("kernels",), {}).all()
    assert work_rows(one, ("kernels",), {}).sum() == 3 * STEPS


def test_nothing_is_chosen_of_a_place_that_a_finding_does_not_name():
    one = place()
    assert not work_rows(one, ("kernels",), {(1, 0): np.ones(3, dtype=bool)}).any()


def test_kernels_and_copies_are_chosen_one_behind_the_other():
    one = place(window=3)
    copies = {(0, 0): kernels_and_copies(one, copies=np.ones(len(one.copies), dtype=bool))}
    assert starts(one, work_rows(one, ("kernels", "copies"), copies)) == [6] * STEPS
    both = {(0, 0): kernels_and_copies(one, kernels(one, 2)[0, 0], np.ones(len(one.copies), dtype=bool))}
    assert starts(one, work_rows(one, ("kernels", "copies"), both)) == [4, 6] * STEPS
    only_kernels = kernels(one, 0)
    assert starts(one, work_rows(one, ("kernels", "copies"), only_kernels)) == [0] * STEPS

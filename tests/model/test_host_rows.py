"""Which row lies around which, and who has which time: as the definition has it, row by row."""

from __future__ import annotations

import re

import numpy as np
import pytest
from builders import draw, frame, timeline

from perfdoctor.model.host_rows import named, nested, nested_rows, outermost, own_ns, when_open
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN

#: Two of a process, and one of another with a number of the first.
THREADS = ((100, 1), (100, 2), (200, 1))
UNIT_NS = 100_000


def forest(seed: int):
    """Random nested rows on three threads, with groups as names."""
    rng = np.random.default_rng(seed)
    rows = []

    def grow(low: int, high: int, process: int, thread: int, depth: int) -> None:
        while high - low > 4 and depth < 6:
            start = low + int(rng.integers(0, (high - low) // 2 + 1))
            end = start + int(rng.integers(1, high - start + 1))
            where = {"process": process, "thread": thread}
            rows.append({"start_ns": start, "end_ns": end, "name": str(rng.integers(0, 3)), **where})
            grow(start, end - 1, process, thread, depth + 1)
            low = end + 1

    for process, thread in THREADS:
        grow(0, 300, process, thread, 0)
    return frame("ops", rows).sorted()


def thread_of(rows, number):
    return int(rows["process"][number]), int(rows["thread"][number])


def around(rows, number):
    """All rows of the same thread that hold this one, the shortest first."""
    start, end = rows.start_ns, rows.end_ns
    return sorted(
        (
            other
            for other in range(len(rows))
            if other != number and thread_of(rows, other) == thread_of(rows, number)
            and start[other] <= start[number] and end[number] <= end[other]
            and (end[other] - start[other] > end[number] - start[number])
        ),
        key=lambda other: int(end[other] - start[other]),
    )  # fmt: skip


def covering(rows, thread, instant):
    """The rows of a thread that are open at an instant, the shortest first."""
    start, end = rows.start_ns, rows.end_ns
    found = [n for n in range(len(rows)) if thread_of(rows, n) == thread and start[n] <= instant < end[n]]
    return sorted(found, key=lambda number: int(end[number] - start[number]))


@pytest.mark.parametrize("seed", range(6))
def test_the_parent_is_the_shortest_row_around(seed):
    rows = forest(seed)
    found = nested(rows)
    for number in range(len(rows)):
        holds = around(rows, number)
        assert found.parent[number] == (holds[0] if holds else UNKNOWN)


@pytest.mark.parametrize("seed", range(6))
def test_an_instant_belongs_to_the_shortest_row_around_it(seed):
    rows = forest(seed)
    instants = np.arange(300, dtype=np.int64)
    for process, thread in (*THREADS, (200, 2)):
        found = nested(rows).innermost(instants, *(np.full(300, each) for each in (process, thread)))
        for instant, row in zip(instants.tolist(), found.tolist(), strict=True):
            open_then = covering(rows, (process, thread), instant)
            assert row == (open_then[0] if open_then else UNKNOWN)


@pytest.mark.parametrize("seed", range(6))
def test_chosen_rows_around_a_row_are_the_nearest_and_the_farthest(seed):
    rows = forest(seed)
    found, chosen = nested(rows), rows.name.equals("1")
    inner, outer = found.innermost_of(chosen).tolist(), found.outermost_of(chosen).tolist()
    for number in range(len(rows)):
        holds = [each for each in (number, *around(rows, number)) if chosen[each]]
        assert (inner[number], outer[number]) == ((holds[0], holds[-1]) if holds else (UNKNOWN, UNKNOWN))


@pytest.mark.parametrize("seed", range(6))
def test_what_lies_in_its_own_group_is_there_again(seed):
    rows = forest(seed)
    group = rows.name.codes.astype(np.int64)
    expected = [any(group[other] == group[number] for other in around(rows, number)) for number in range(len(rows))]
    assert nested(rows).again(group).tolist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_own_time_is_what_no_inner_row_has(seed):
    rows = forest(seed)
    found = nested(rows)
    inner = [sum(int(rows.duration_ns[o]) for o in np.flatnonzero(found.parent == n)) for n in range(len(rows))]
    assert found.own(rows.duration_ns).tolist() == (rows.duration_ns - np.array(inner)).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_time_is_shared_out_once(seed):
    rows = forest(seed)
    pieces = Intervals.of([10, 90, 200], [50, 91, 280])
    expected = [0] * len(rows)
    for thread in THREADS:
        for instant in [at for start, end in pieces for at in range(start, end)]:
            for row in covering(rows, thread, instant)[:1]:
                expected[row] += 1
    assert own_ns(rows, pieces).tolist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_outermost_rows_are_those_with_none_around(seed):
    rows = forest(seed)
    expected = [number for number in range(len(rows)) if not around(rows, number)]
    assert outermost(rows).start_ns.tolist() == rows.start_ns[expected].tolist()


def test_a_row_inside_another_is_not_outermost_even_if_both_begin_at_once():
    drawn = draw(host=["ooo oo", "t   t ", " t    "], legend={"t": ("ops", "aten::mm")})
    assert outermost(drawn.ops).duration_ns.tolist() == [3 * UNIT_NS, 2 * UNIT_NS]


def test_what_has_no_share_of_the_time_takes_none_from_the_row_around_it():
    rows = frame("ops", [{"start_ns": 0, "end_ns": 10, "name": "a"}, {"start_ns": 2, "end_ns": 5, "name": "b"}])
    assert own_ns(rows, Intervals.single(5, 9)).tolist() == [4, 0]


def test_of_nothing_comes_nothing():
    none = frame("ops", [])
    assert nested(none).innermost(np.array([3]), np.array([100]), np.array([1])).tolist() == [UNKNOWN]
    assert own_ns(none, Intervals.single(0, 10)).tolist() == []
    assert len(outermost(none)) == 0


def test_rows_of_a_rank_know_their_numbers_in_the_timeline():
    row = {"start_ns": 0, "end_ns": 9, "name": "aten::mm"}
    drawn = timeline(ops=[{**row, "rank": 1}, {**row, "start_ns": 1, "rank": 0}, {**row, "start_ns": 2, "rank": 1}])
    assert nested_rows(drawn, 1, "ops").numbers.tolist() == [0, 2]
    assert nested_rows(drawn, 1, "ops") is nested_rows(drawn, 1, "ops")


def test_rows_of_a_name_are_open_on_any_thread_of_their_rank_alone():
    row = {"start_ns": 0, "end_ns": 10, "name": "optimizer"}
    drawn = timeline(
        ranges=[row, {**row, "start_ns": 20, "end_ns": 30, "thread": 2}, {**row, "end_ns": 90, "rank": 1}],
        ops=[{**row, "start_ns": 25, "end_ns": 40}, {**row, "start_ns": 50, "end_ns": 60, "name": "forward"}],
    )
    pattern = re.compile("optimizer")
    assert list(when_open(drawn, 0, pattern, "ranges", "ops")) == [(0, 10), (20, 40)]
    assert list(when_open(drawn, 0, pattern, "ranges")) == [(0, 10), (20, 30)]
    assert named(drawn, "ops", pattern).tolist() == [True, False]

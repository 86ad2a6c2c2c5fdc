"""Is anything lost when events of a long run are merged? Counts, times and unmerged spans, compared with plain loops."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.model.columns import Text
from perfdoctor.views.timeline import thin
from perfdoctor.views.timeline.lanes import Drawn, Lane
from perfdoctor.views.timeline.thin import JOINED_BYTES, LONE_BYTES, thinned

Piece = tuple[int, int, int]


def lane_of(pieces: list[Piece], values: list[float] | None = None) -> Lane:
    """(row, start, end), in any order; pieces of a row do not overlap."""
    order = sorted(range(len(pieces)), key=lambda at: pieces[at][1])
    row, start, end = (np.array([pieces[at][side] for at in order], dtype=np.int64) for side in range(3))
    numbers = np.array([values[at] for at in order]) if values else np.empty(0)
    return Lane("ops", "", Drawn(start, end - start, Text.constant("x", len(pieces))), row, values=numbers)


@st.composite
def lanes(draw):
    found = []
    for _ in range(draw(st.integers(1, 3))):
        pieces: list[Piece] = []
        for row in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, 50))
            for gap, length in draw(
                st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=25)
            ):
                pieces.append((row, at + gap, at + gap + length))
                at += gap + length
        found.append(lane_of(pieces))
    return found


stretches = st.tuples(st.integers(0, 800), st.integers(1, 400)).map(lambda each: (each[0], each[0] + each[1]))


def drawn(each):
    """(row, start, end, count, busy) of each piece."""
    columns = (each.row, each.start_ns, each.start_ns + each.duration_ns, each.count, each.busy_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def pieces_of(lane: Lane) -> list[Piece]:
    columns = (lane.row, lane.start_ns, lane.start_ns + lane.duration_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def bytes_of(found) -> int:
    return sum(LONE_BYTES if count == 1 else JOINED_BYTES for each in found for *_, count, _ in drawn(each))


@given(lanes(), stretches, st.lists(stretches, max_size=3), st.integers(0, 4_000))
def test_nothing_is_lost(given_lanes, typical, moments, budget):
    found, _ = thinned(given_lanes, budget, typical, moments)
    for lane, each in zip(given_lanes, found, strict=True):
        assert each.start_ns.tolist() == sorted(each.start_ns.tolist())
        by_row = defaultdict(list)
        for piece in sorted(pieces_of(lane)):
            by_row[piece[0]].append(piece)
        for row, start, end, count, busy in sorted(drawn(each), key=lambda piece: piece[:3]):
            own, by_row[row] = by_row[row][:count], by_row[row][count:]  # the next ones of the row, in their order
            assert len(own) == count
            assert (own[0][1], own[-1][2]) == (start, end)
            assert sum(b - a for _, a, b in own) == busy
        assert not any(by_row.values())


lengths = st.one_of(st.integers(0, 40), st.integers(0, 2**33), st.just(2**32 - 1))


@given(st.lists(st.tuples(lengths, lengths, st.booleans()), min_size=1, max_size=30))
def test_the_sizes_of_all_powers_of_two_are_those_of_each(given_pairs):
    starts = np.cumsum([0, *(apart for apart, _, _ in given_pairs)])
    above = [length if may_be else 2**32 - 1 for _, length, may_be in given_pairs]
    pairs = thin._Pairs(starts, np.minimum(above, 2**32 - 1).astype(np.uint32))
    found = list(zip(*(each.tolist() for each in pairs.sizes()), strict=True))
    for power in range(63):
        cells = (starts >> power).tolist()
        ones = [False] + [
            longest < min(2**power, 2**32 - 1) and cells[at] == cells[at + 1] for at, longest in enumerate(above)
        ]
        groups = sum(now and not before for before, now in pairwise(ones))
        assert found[power] == (sum(ones), groups)
        assert pairs.joined(2**power).tolist() == ones


@given(lanes(), stretches, st.lists(stretches, max_size=3), st.integers(0, 4_000))
def test_pieces_of_a_row_do_not_overlap(given_lanes, typical, moments, budget):
    for each in thinned(given_lanes, budget, typical, moments)[0]:
        reach: dict[int, int] = defaultdict(int)
        for row, start, end, *_ in sorted(drawn(each), key=lambda piece: piece[:3]):
            assert reach[row] <= start
            reach[row] = end


@given(lanes(), stretches, st.lists(stretches, max_size=3), st.integers(0, 4_000))
def test_what_is_whole_stays_as_it_is(given_lanes, typical, moments, budget):
    found, whole = thinned(given_lanes, budget, typical, moments)
    for begin, stop in whole:
        for lane, each in zip(given_lanes, found, strict=True):
            touching = sorted(piece for piece in pieces_of(lane) if piece[1] < stop and piece[2] > begin)
            shown = sorted(piece for piece in drawn(each) if piece[1] < stop and piece[2] > begin)
            assert [piece[:3] for piece in shown] == touching
            assert all(count == 1 for *_, count, _ in shown)


@given(lanes(), stretches, st.lists(stretches, max_size=3), st.integers(0, 4_000))
def test_the_budget_is_kept_but_for_one_piece_a_row_and_side(given_lanes, typical, moments, budget):
    found, whole = thinned(given_lanes, budget, typical, moments)
    rows = sum(int(lane.row.max()) + 1 for lane in given_lanes)
    sides = len(whole) + 4  # of each stretch that is drawn in another way, the typical step's inside among them
    assert bytes_of(found) <= budget + rows * sides * JOINED_BYTES


@given(lanes(), stretches)
def test_what_fits_is_not_thinned(given_lanes, typical):
    pieces = sum(len(lane) for lane in given_lanes)
    found, whole = thinned(given_lanes, pieces * LONE_BYTES, typical)
    assert [sorted(p[:3] for p in drawn(each)) for each in found] == [sorted(pieces_of(lane)) for lane in given_lanes]
    ((begin, stop),) = whole
    assert begin == 0
    assert stop >= max(piece[2] for lane in given_lanes for piece in pieces_of(lane))


def long_run(seed: int = 1, steps: int = 100, each: int = 1_000) -> Lane:
    """Steps of a million ns, with pieces of any length and distance."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, steps * 1_000_000, steps * each))
    ends = np.minimum(starts + rng.integers(1, 3_000, starts.size), np.append(starts[1:], starts[-1] + 5))
    return lane_of([(0, a, b) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])


def test_the_typical_step_and_the_first_moments_are_whole_and_the_rest_gets_what_is_left():
    lane, typical, budget = long_run(), (50_000_000, 51_000_000), 60_000
    moments = [(10_000_000, 10_100_000), (80_000_000, 90_000_000), (20_000_000, 20_050_000)]
    (found,), whole = thinned([lane], budget, typical, moments)
    assert list(whole) == [moments[0], moments[2], typical]  # ten steps are too much
    assert 0.8 * budget < bytes_of([found]) <= budget
    outside = found.start_ns[found.count > 1]
    assert len({start // 1_000_000 for start in outside.tolist()}) >= 98  # each other step still shows


def test_a_step_that_is_too_much_is_thinned_more_finely_than_the_rest():
    lane, typical, budget = long_run(steps=10, each=10_000), (5_000_000, 6_000_000), 30_000
    (found,), whole = thinned([lane], budget, typical)
    assert not whole
    assert bytes_of([found]) <= budget
    inside = (found.start_ns >= typical[0]) & (found.start_ns < typical[1])
    assert 0.3 * budget < LONE_BYTES * inside.sum()
    assert np.median(found.count[inside]) < np.median(found.count[~inside]) / 4


def test_moments_beside_a_step_that_is_too_much_share_its_room():
    lane, typical, moment, budget = long_run(steps=10, each=10_000), (5_000_000, 6_000_000), (0, 100_000), 30_000
    (found,), whole = thinned([lane], budget, typical, [moment])
    assert list(whole) == [moment]
    inside, around = (
        (found.start_ns < end) & (found.start_ns + found.duration_ns > begin) for begin, end in (typical, moment)
    )
    assert LONE_BYTES * (inside.sum() + around.sum()) <= bytes_of([found]) <= budget
    of_step = sum(LONE_BYTES if count == 1 else JOINED_BYTES for count in found.count[inside].tolist())
    assert of_step + LONE_BYTES * around.sum() <= 0.6 * budget


def test_without_steps_the_whole_budget_is_used():
    lane, budget = long_run(), 60_000
    (found,), whole = thinned([lane], budget, (0, 100_000_000))
    assert not whole
    assert 0.8 * budget < bytes_of([found]) <= budget


def test_merged_events_are_short_close_and_in_one_cell():
    (found,), _ = thinned([long_run()], 60_000, (0, 1))
    joined = found.count > 1
    longest_alone = int(found.duration_ns[~joined].max(initial=0))
    assert found.duration_ns[joined].max() < 2 * 2_000_000  # a cell, and the last piece's way out of it
    assert longest_alone <= 3_000


def test_merged_events_have_the_name_of_the_longest_and_counters_the_highest_value():
    pieces = [(0, at * 10, at * 10 + (9 if at == 4 else 2)) for at in range(8)]
    lane = lane_of(pieces, values=[1.0, 7.0, 2.0, 3.0, 0.0, 9.5, 4.0, 1.0])
    (found,), _ = thinned([lane], JOINED_BYTES, (1_000, 1_001))
    assert (found.count.tolist(), found.piece.tolist(), found.values.tolist()) == ([8], [4], [9.5])


@pytest.mark.parametrize("budget", [0, 1_000])
def test_of_nothing_comes_nothing(budget):
    assert thinned([], budget, (0, 10))[0] == []
    (found,), _ = thinned([lane_of([])], budget, (0, 10))
    assert len(found) == 0

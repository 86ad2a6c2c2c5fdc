"""Is the algebra of time right? Held against plain sets of instants."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.model.intervals import Intervals

INSTANTS = 40
pieces = st.lists(st.tuples(st.integers(0, INSTANTS), st.integers(0, INSTANTS)), max_size=8)
instant = st.integers(-5, INSTANTS + 5)


def intervals(found: list[tuple[int, int]]) -> Intervals:
    return Intervals.of([start for start, _ in found], [end for _, end in found])


def instants(found: list[tuple[int, int]]) -> set[int]:
    return {at for start, end in found for at in range(start, end)}


def held(result: Intervals) -> set[int]:
    """The instants, after a check of the canonical form: sorted, non-empty, not touching, int64."""
    assert result.starts.dtype == result.ends.dtype == np.int64
    assert (result.ends > result.starts).all()
    assert (result.starts[1:] > result.ends[:-1]).all()
    return instants(list(result))


@given(pieces)
def test_pieces_in_any_order_become_canonical(some):
    assert held(intervals(some)) == instants(some)


@given(pieces, pieces)
def test_union_is_the_union_of_sets(some, others):
    assert held(intervals(some) | intervals(others)) == instants(some) | instants(others)


@given(pieces, pieces)
def test_intersection_is_the_intersection_of_sets(some, others):
    assert held(intervals(some) & intervals(others)) == instants(some) & instants(others)


@given(pieces, pieces)
def test_difference_is_the_difference_of_sets(some, others):
    assert held(intervals(some) - intervals(others)) == instants(some) - instants(others)


@given(pieces, instant, instant)
def test_within_cuts_to_the_window(some, start, end):
    assert held(intervals(some).within(start, end)) == instants(some) & set(range(start, end))


@given(pieces, instant, instant)
def test_complement_is_what_the_window_has_left(some, start, end):
    assert held(intervals(some).complement(start, end)) == set(range(start, end)) - instants(some)


@given(pieces)
def test_total_counts_every_instant_once(some):
    assert intervals(some).total_ns == len(instants(some)) == int(intervals(some).durations_ns.sum())


@given(pieces, st.lists(st.tuples(instant, instant), max_size=6))
def test_overlap_of_each_piece_is_counted_on_its_own(some, queries):
    ordered = [(min(query), max(query)) for query in queries]
    overlap = intervals(some).overlap_ns([start for start, _ in ordered], [end for _, end in ordered])
    assert overlap.tolist() == [len(instants(some) & set(range(start, end))) for start, end in ordered]


@given(pieces, pieces)
def test_equal_sets_are_equal_however_they_were_written(some, others):
    assert (intervals(some) == intervals(others)) == (instants(some) == instants(others))


@given(pieces, pieces)
def test_what_is_in_both_and_what_is_only_here_make_the_whole(some, others):
    one, other = intervals(some), intervals(others)
    assert (one & other).total_ns + (one - other).total_ns == one.total_ns
    assert (one & other) | (one - other) == one


def test_touching_pieces_join_and_empty_ones_vanish():
    assert list(Intervals.of([0, 5, 9, 7], [5, 6, 9, 7])) == [(0, 6)]


def test_an_interval_is_half_open():
    assert list(Intervals.single(0, 5) & Intervals.single(5, 9)) == []
    assert not Intervals.single(3, 3)


def test_nanoseconds_of_a_unix_clock_do_not_lose_a_digit():
    start = 1_751_410_836_123_456_789
    assert list(Intervals.single(start, start + 1)) == [(start, start + 1)]


def test_the_repr_shows_six_pieces_at_most():
    assert repr(Intervals.single(1, 2)) == "Intervals([1, 2))"
    assert repr(Intervals.of(range(0, 20, 2), range(1, 21, 2))).endswith("[10, 11), …)")


def test_it_equals_nothing_but_intervals():
    assert Intervals.single(1, 2) != [(1, 2)]


def test_free_since_is_the_end_of_what_came_before():
    busy = Intervals.of([0, 10, 20], [5, 15, 30])
    never = np.iinfo(np.int64).min
    moments = np.array([-1, 0, 3, 7, 10, 17, 40])
    assert busy.free_since(moments).tolist() == [never, never, 3, 5, 5, 15, 30]
    assert Intervals.empty().free_since(moments[:1]).tolist() == [never]

"""In which row is a piece drawn? As deep as it is nested, and never over another one."""

from __future__ import annotations

import numpy as np
import pytest
from builders import frame
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.views.timeline.lanes import DrawnWindow, apart, depths, lane_of, order, split

Spans = list[tuple[int, int]]


def rows_of(spans: Spans) -> list[int]:
    start, end = (np.array([span[side] for span in spans], dtype=np.int64) for side in (0, 1))
    return depths(start, end).tolist()


def nested(children: st.SearchStrategy[Spans]) -> st.SearchStrategy[Spans]:
    return st.lists(children, max_size=3).map(_around)


def _around(parts: list[Spans]) -> Spans:
    """The parts one after the other, a unit apart, and one span around all of them."""
    inside, at = [], 1
    for part in parts:
        length = max(end for _, end in part)
        inside += [(start + at, end + at) for start, end in part]
        at += length + 1
    return [(0, at), *inside]


trees = st.recursive(st.integers(1, 20).map(lambda length: [(0, length)]), nested, max_leaves=20)
any_spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), min_size=1, max_size=30).map(
    lambda found: sorted(((start, start + length) for start, length in found), key=lambda span: (span[0], -span[1]))
)


@given(trees)
def test_what_nests_is_as_deep_as_there_are_others_around_it(spans):
    spans = sorted(spans, key=lambda span: (span[0], -span[1]))
    around = [
        sum(a <= start and end <= b for place, (a, b) in enumerate(spans) if place != own)
        for own, (start, end) in enumerate(spans)
    ]
    assert rows_of(spans) == around


@given(any_spans)
def test_no_row_holds_two_pieces_at_once(spans):
    reach: dict[int, int] = {}
    for (start, end), row in zip(spans, rows_of(spans), strict=True):
        assert reach.get(row, 0) <= start
        reach[row] = max(reach.get(row, 0), end)


@given(any_spans)
def test_a_piece_lies_below_those_that_contain_it(spans):
    rows = rows_of(spans)
    for inner, row in zip(spans, rows, strict=True):
        for outer, above in zip(spans, rows, strict=True):
            if outer != inner and outer[0] <= inner[0] < inner[1] <= outer[1]:
                assert above < row


def test_a_chain_of_overlaps_takes_two_rows_and_not_one_a_piece():
    chain = [(at * 10, at * 10 + 15) for at in range(500)]
    assert rows_of(chain) == [0, 1] * 250


def test_of_those_that_start_together_the_longest_is_outermost():
    both = frame("ops", [{"start_ns": 5, "end_ns": 9, "name": "inner"}, {"start_ns": 5, "end_ns": 20, "name": "outer"}])
    lane = lane_of("ops", "", both, np.arange(2), DrawnWindow(0, 100))
    assert list(lane.pieces.name) == ["outer", "inner"]
    assert lane.row.tolist() == [0, 1]
    assert lane.pieces.rows.tolist() == [1, 0]


def test_pieces_are_cut_at_the_edges_of_the_window():
    window = DrawnWindow(100, 200)
    rows = frame(
        "ops", [{"start_ns": a, "end_ns": b, "name": f"{a}"} for a, b in ((50, 100), (90, 130), (150, 300), (200, 210))]
    )
    assert window.rows(rows).tolist() == [1, 2]
    lane = lane_of("ops", "", rows, window.rows(rows), window)
    assert lane.start_ns.tolist() == [0, 50]
    assert lane.duration_ns.tolist() == [30, 50]


@given(st.lists(st.integers(0, 70_000), max_size=50))
def test_order_is_stable(values):
    assert order(np.array(values, dtype=np.int64)).tolist() == sorted(range(len(values)), key=lambda at: values[at])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.sampled_from([7, 1 << 40])), min_size=1, max_size=30)
)
def test_rows_are_distinguished_by_all_columns(rows):
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    keys, which = apart(columns)
    assert [keys[each] for each in which.tolist()] == rows
    assert len(keys) == len(set(rows))


def test_a_frame_is_split_into_all_its_rows():
    rows = frame(
        "ops", [{"start_ns": at, "end_ns": at + 1, "name": "", "thread": at % 3, "rank": at % 2} for at in range(12)]
    )
    found = dict(split(rows, np.arange(2, 12), "rank", "thread"))
    assert {key: own.tolist() for key, own in found.items()} == {
        (rank, thread): [at for at in range(2, 12) if (at % 2, at % 3) == (rank, thread)]
        for rank in (0, 1)
        for thread in (0, 1, 2)
    }
    assert list(split(rows, np.arange(0), "rank")) == []


@pytest.mark.parametrize("spans", [[], [(0, 0)], [(3, 3), (3, 3)]])
def test_nothing_and_no_time(spans):
    assert rows_of(spans) == list(range(len(spans)))

"""Where was work launched? Held against a loop over all rows, on several processes and threads."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from builders import draw, only_place, timeline
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import first_kernels, launches, launches_of, recorded_launches
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Timeline

#: Two threads of a process, and one of another process and one of another rank that have the first one's number.
THREADS = ((0, 100, 1), (0, 100, 2), (0, 200, 1), (1, 100, 1))
NAMES = ("aten::mm", "aten::add", "aten::copy_")

thread = st.sampled_from(THREADS)
spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30), thread, st.sampled_from(NAMES)).filter(lambda it: it[0] <= it[1]),
    max_size=25,
)
called_at = st.lists(st.tuples(st.integers(0, 30), thread), min_size=1, max_size=12)


def where(of: tuple[int, int, int]) -> dict[str, object]:
    return dict(zip(("rank", "process", "thread"), of, strict=True))


def nesting(found: Sequence[tuple]) -> list[tuple]:
    """Those that lie inside or beside the ones before them on their thread."""
    kept: list[tuple] = []
    for start, end, of, name in found:
        same = [each for each in kept if each[2] == of]
        inside = all(
            end <= a or b <= start or (a <= start and end <= b) or (start <= a and b <= end) for a, b, *_ in same
        )
        if inside:
            kept.append((start, end, of, name))
    return kept


def recorded(found: Sequence[tuple], calls: Sequence[tuple]) -> Timeline:
    """Kernels that run long after their calls; equal correlations in different processes and ranks."""
    numbered = [(at, of, sum(other == of for _, other in calls[:n])) for n, (at, of) in enumerate(calls)]
    of_calls = [
        {**where(of), "start_ns": at, "end_ns": at, "name": "cudaLaunchKernel", "correlation": number}
        for at, of, number in numbered
    ]
    kernels = [
        {**where(of), "start_ns": 1000 + n, "end_ns": 1001 + n, "name": "k", "correlation": 100 * of[2] + number}
        for n, (_, of, number) in enumerate(numbered)
    ]
    of_calls = [{**row, "correlation": 100 * row["thread"] + row["correlation"]} for row in of_calls]
    kernels = [{key: value for key, value in row.items() if key != "thread"} for row in kernels]
    ops = [{**where(of), "start_ns": start, "end_ns": end, "name": name} for start, end, of, name in found]
    return timeline(kernels=kernels, calls=of_calls, ops=ops, ranges=ops)


def open_rows(place: Place, kernel: int, chosen: np.ndarray) -> list[int]:
    """The chosen ops around a kernel's launch, the shortest first: checked against every op and every call."""
    run, kernels = place.timeline, place.kernels
    key = [int(kernels[column][kernel]) for column in ("rank", "process", "correlation")]
    columns = [run.calls[column].tolist() for column in ("rank", "process", "correlation")]
    call = list(zip(*columns, strict=True)).index(tuple(key))
    at, ops = run.calls.start_ns[call], run.ops
    found = [
        row
        for row in range(len(ops))
        if chosen[row] and ops.start_ns[row] <= at < ops.end_ns[row]
        and all(ops[column][row] == run.calls[column][call] for column in ("rank", "process", "thread"))
    ]  # fmt: skip
    return sorted(found, key=lambda row: int(ops.duration_ns[row]))


def spanned(place: Place, row: int) -> tuple[int, ...] | None:
    """What distinguishes rows, but for those that begin and end together."""
    ops = place.timeline.ops
    columns = ("rank", "process", "thread", "start_ns", "end_ns")
    return None if row == UNKNOWN else tuple(int(ops[column][row]) for column in columns)


@given(spans, called_at)
def test_the_innermost_and_the_outermost_row_are_those_that_a_loop_finds(found, calls):
    run = prepare(recorded(nesting(found), calls))
    every, products = np.ones(len(run.timeline.ops), dtype=bool), run.timeline.ops.name.equals("aten::mm")
    assert sum(len(place.kernels) for place in run.places) == len(calls)
    for place in run.places:
        launched = launches_of(place, "kernels")
        inner, outer = launched.enclosing("ops").tolist(), launched.outermost("ops").tolist()
        of_products = launched.outermost("ops", products).tolist()
        for kernel in range(len(place.kernels)):
            expected = [spanned(place, row) for row in open_rows(place, kernel, every)] or [None]
            assert spanned(place, inner[kernel]) == expected[0]
            assert spanned(place, outer[kernel]) == expected[-1]
            expected = [spanned(place, row) for row in open_rows(place, kernel, products)] or [None]
            assert spanned(place, of_products[kernel]) == expected[-1]
            assert launched.inside_of("ops", products)[kernel] == (expected[-1] is not None)
        assert launched.enclosing("ranges").tolist() == inner


@given(spans, called_at)
def test_launches_while_a_name_is_open_are_those_of_the_rank_on_any_thread(found, calls):
    run = prepare(recorded(found, calls))
    ops = run.timeline.ops
    for place in run.places:
        launched = launches_of(place, "kernels")
        during = launched.while_open(re.compile("^aten::mm$"), "ops", "ranges").tolist()
        for at, inside in zip(launched.at_ns.tolist(), during, strict=True):
            assert inside == any(
                ops.start_ns[row] <= at < ops.end_ns[row] and ops["rank"][row] == place.rank
                for row in np.flatnonzero(ops.name.equals("aten::mm"))
            )


def test_drawn_kernels_know_their_call_their_thread_and_their_moment():
    place = only_place(draw(kernels="   ## ++", host={1: ["l", "oo"], 7: [" l"]}))
    launched, calls = launches_of(place, "kernels"), place.timeline.calls
    assert launched.call.tolist() == [0, 1]
    assert launched.thread.tolist() == [1, 7]
    assert launched.process.tolist() == [100, 100]
    assert launched.at_ns.tolist() == calls.start_ns.tolist()
    assert launched.enclosing("ops").tolist() == [0, UNKNOWN]


def test_rows_of_each_signal_keep_their_order_and_those_outside_the_window_are_recorded_alone():
    whole = only_place(draw(kernels=" #  #  ", nccl="   =   ", copies="h     d", host="lllll  ", repeat=4))
    half = Intervals.single(int(whole.steps.bounds[1]), int(whole.steps.bounds[2]))
    place = replace(whole, window=half)
    for signal in ("kernels", "collectives", "copies"):
        rows, inside = place.recorded(signal), place.in_window(signal)
        assert recorded_launches(place, signal).call.tolist() == [
            int(np.flatnonzero(place.timeline.calls["correlation"] == each)[0]) for each in rows["correlation"]
        ]
        in_window = launches_of(place, signal).call.tolist()
        assert in_window == recorded_launches(place, signal).call[inside].tolist()
        assert len(in_window) < len(rows)


def test_without_calls_nothing_is_known():
    launched = launches(only_place(draw(kernels="## ##", host="oo")))
    assert not launched.known.any()
    for column in (launched.at_ns, launched.process, launched.thread, launched.enclosing("ops")):
        assert column.tolist() == [UNKNOWN, UNKNOWN]
    assert not launched.within(Intervals.single(-10, 10)).any()
    assert launched.outermost("ops").tolist() == [UNKNOWN, UNKNOWN]


def test_work_that_was_queued_before_the_recording_was_launched_by_nobody():
    kernels = [{"start_ns": 100 + n, "end_ns": 101 + n, "name": "k", "correlation": n} for n in (1, 2)]
    calls = [{"start_ns": 5, "end_ns": 6, "name": "cudaLaunchKernel", "correlation": 2}]
    (place,) = prepare(timeline(kernels=kernels, calls=calls, ops=[{"start_ns": -5, "end_ns": 9, "name": "o"}])).places
    launched = launches(place)
    assert launched.at_ns.tolist() == [UNKNOWN, 5]
    assert launched.enclosing("ops").tolist() == [UNKNOWN, 0]
    assert launched.within(Intervals.single(-5, 9)).tolist() == [False, True]


@pytest.mark.parametrize(("at", "inside"), [(9, False), (10, True), (19, True), (20, False)])
def test_a_row_lies_around_what_begins_from_its_start_to_before_its_end(at, inside):
    (place,) = prepare(recorded([(10, 20, THREADS[0], "aten::mm")], [(at, THREADS[0])])).places
    assert (launches_of(place, "kernels").enclosing("ops")[0] != UNKNOWN) == inside


def test_ops_that_launched_kernels_come_with_the_start_of_their_first():
    ops = [(0, 9, THREADS[0], "aten::mm"), (2, 4, THREADS[0], "aten::mm"), (10, 15, THREADS[0], "aten::mm")]
    calls = [(3, THREADS[0]), (1, THREADS[0]), (12, THREADS[1]), (20, THREADS[0])]
    (place,) = prepare(recorded(ops, calls)).places
    kernel_op, found, first = first_kernels(place, place.timeline.ops.name.equals("aten::mm"))
    assert kernel_op.tolist() == [0, 0, UNKNOWN, UNKNOWN]
    assert (found.end_ns.tolist(), first.tolist()) == ([9], [1000])


def test_it_is_worked_out_once():
    place = only_place(draw(kernels="####", host=["l", "o"]))
    assert launches(place) is launches(place)
    assert launches_of(place, "kernels") is launches_of(place, "kernels")

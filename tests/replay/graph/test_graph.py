"""Does the graph know what waited for what? On pictures of which it is known."""

from __future__ import annotations

import numpy as np
import pytest
from builders import BASE_NS, draw, only_place, timeline
from graphs import FEW, HOST, WAIT_END, WORK, graph, random_graphs, random_timelines, simulated_step
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.queued import full_queue_launches
from perfdoctor.model.device_work import device_work
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Timeline
from perfdoctor.replay.graph.build import graph_of
from perfdoctor.replay.graph.graph import NOTHING, Graph
from perfdoctor.replay.graph.simulate import simulate

US = 1_000
UNIT = 100 * US


def error(of: Graph) -> float:
    return simulate([of]).step_ns / of.step_ns - 1


def depends(of: Graph, kind: int, which: int) -> list[int]:
    return of.depends[which][of.kind == kind].tolist()


def calls_named(of: Graph, name: str, kind: int = HOST) -> np.ndarray:
    rows = of.place.timeline.calls.name.equals(name)
    return np.flatnonzero((of.kind == kind) & (of.call_row >= 0) & rows[np.maximum(of.call_row, 0)])


def is_possible(place: Place) -> bool:
    """Work comes after its launch, and in the order of launches on each stream."""
    work, calls = place.work, place.timeline.calls
    if (calls.start_ns[work.launch] > work.start_ns).any():
        return False
    streams = [calls.start_ns[work.launch[work.stream == stream]] for stream in np.unique(work.stream)]
    return all((np.diff(launched) >= 0).all() for launched in streams)


@settings(FEW, suppress_health_check=[HealthCheck.filter_too_much])
@given(random_timelines())
def test_a_picture_that_repeats_plays_as_it_was_drawn(drawn):
    places = prepare(drawn).places
    assume(len(places) == 1)
    found = graph_of(places[0])
    assume(found is not None)
    assume(is_possible(places[0]))
    assert error(found) <= 1e-3
    if (found.kind == WAIT_END).any():  # a host that waits for nothing may get ahead, and the device is faster then
        assert abs(error(found)) <= 1e-3


@FEW
@given(random_graphs())
def test_each_node_comes_after_what_it_depends_on(graph):
    for depends, before in zip(graph.depends, graph.before, strict=True):
        same = (depends != NOTHING) & ~before
        assert (depends[same] < np.flatnonzero(same)).all()
        assert (depends >= NOTHING).all()
        assert (depends < len(graph)).all()
    held = np.stack(graph.depends) != NOTHING
    assert held.any(axis=0).all(), "each has something that holds it"


@FEW
@given(random_timelines(), st.data())
def test_calls_that_overlap_on_one_thread_as_in_a_damaged_recording_still_come_one_after_the_other(drawn, data):
    calls = drawn.calls
    longer = data.draw(st.lists(st.integers(0, 20), min_size=len(calls), max_size=len(calls)))
    damaged = calls.with_columns(
        end_ns=calls.end_ns + UNIT * np.array(longer, np.int64), process=np.arange(len(calls), dtype=np.int64)
    )
    places = prepare(drawn.with_frame("calls", damaged)).places
    assume(len(places) == 1)
    found = graph_of(places[0])
    assume(found is not None)
    for depends, before in zip(found.depends, found.before, strict=True):
        same = (depends != NOTHING) & ~before
        assert (depends[same] < np.flatnonzero(same)).all()
    simulate([found])


@FEW
@given(random_graphs())
def test_nodes_are_the_calls_and_the_work_of_its_steps(graph):
    place = graph.place
    work = graph.work_row[graph.kind == WORK]
    assert np.unique(work).size == work.size
    assert graph.duration_ns[graph.kind == WORK].tolist() == (place.work.end_ns - place.work.start_ns)[work].tolist()
    calls = graph.call_row[graph.kind == HOST]
    assert np.unique(calls).size == calls.size
    assert set(graph.call_row[graph.kind == WAIT_END].tolist()) <= set(calls.tolist())


def test_work_follows_its_stream_and_its_launch():
    of = graph(draw(kernels=" ##++  ", host="l  l   ", repeat=4))
    works = np.flatnonzero(of.kind == WORK)
    assert depends(of, WORK, 0)[1:] == works[:-1].tolist()
    assert of.before[0][works].tolist() == [True] + [False] * (works.size - 1)
    launching = calls_named(of, "cudaLaunchKernel")
    assert depends(of, WORK, 1) == launching.tolist()


def test_a_launch_that_nobody_recorded_leaves_the_stream():
    drawn = draw(kernels=" ##++  ", host="l      ", repeat=4)
    of = graph(drawn)
    assert NOTHING in depends(of, WORK, 1)
    assert abs(error(of)) < 1e-3


def test_a_program_without_calls_has_work_only():
    drawn = draw(kernels=[" ##  ", "   # "], mark=None, repeat=4)
    place = only_place(draw(kernels=[" ##  ", "   # "], host="l    ", repeat=4))
    bare = replace(only_place(drawn), steps=place.steps)
    of = graph_of(bare)
    assert of is not None
    assert (of.kind == WORK).all()
    assert abs(error(of)) < 1e-3


@pytest.mark.parametrize("once", [5, 9, 14])
def test_work_that_comes_once_on_a_stream_of_its_own_does_not_keep_the_recorded_pace(once):
    """Nobody recorded its launch: it waits for other streams, in front of the period's first work for the last one."""
    steps = only_place(draw(kernels="##   ", host="l    ", repeat=5)).steps
    other = " " * once + "e" + " " * (24 - once)
    of = graph_of(replace(only_place(draw(kernels=["##   " * 5, other], mark=None)), steps=steps))
    assert of is not None
    assert np.unique(of.place.work.stream[of.work_row]).size == 2
    assert abs(error(of)) < 1e-3
    faster = replace(of, duration_ns=of.duration_ns // 2)
    assert simulate([faster]).step_ns <= 0.85 * of.step_ns


def test_no_steps_no_graph():
    assert graph_of(only_place(draw(kernels=" ##++  ", host="l  l   ", mark=None))) is None


def test_one_step_is_a_period_of_its_own():
    drawn = draw(kernels=" ##++  ", host=["l  l   ", "0000000"])
    of = graph(drawn)
    assert of.units == 1
    assert abs(error(of)) < 1e-3


def test_of_very_much_work_the_last_steps_are_simulated():
    drawn = draw(kernels=" ##++  ", host="l  l   ", repeat=8)
    assert graph(drawn).units == 7
    assert graph(drawn, most_work=4).units == 2
    assert graph(drawn, most_work=1).units == 1
    assert graph(drawn, most_units=3).units == 3
    last = graph(drawn, most_work=4)
    assert last.recorded_end_ns.max() == graph(drawn).recorded_end_ns.max()


def test_a_wait_waits_for_the_work_that_ended_with_it():
    of = graph(draw(kernels=" ####    ", host="l sss    ", repeat=4))
    (ends,) = (np.flatnonzero(of.kind == WAIT_END),)
    assert ends.size == of.units
    for end in ends.tolist():
        waited_for = int(of.depends[1][end])
        assert of.kind[waited_for] == WORK
        assert of.recorded_end_ns[end] == of.recorded_end_ns[waited_for]
    shorter = replace(of, duration_ns=np.where(of.kind == WORK, of.duration_ns // 2, of.duration_ns))
    assert simulate([shorter]).step_ns == pytest.approx(7 * UNIT)


def test_a_call_that_copies_and_waits_waits_for_its_own_copy():
    """The other stream happens to end work as it returns."""
    of = graph(draw(kernels=["#     ", "  #### "], copies="    dd ".replace("d", "D"), host="llCCCC ", repeat=5,
                    legend={"C": ("calls", "hipMemcpyWithStream")}))  # fmt: skip
    (copies,) = {of.place.work.is_blocking_copy[of.work_row[of.depends[1][end]]] for end in np.flatnonzero(of.kind == WAIT_END)}  # fmt: skip
    assert copies


def test_a_wait_may_be_for_work_of_the_step_before():
    """The host is a step ahead: what it waits for was launched in front of the period."""
    of = graph(draw(kernels="########  ", host="l    s    ", host_ahead=8, repeat=6))
    assert abs(error(of)) < 1e-3
    waits = of.kind == WAIT_END
    assert of.before[1][waits].sum() == 1, "the first of the period"


def event(reached: bool) -> Timeline:
    """A short wait for an event, long after the work was done or as it was done."""
    wait = "   e" if reached else "  e "
    return draw(kernels=" ##       ", host=["l         ", wait + "      "], repeat=5,
                legend={"e": ("calls", "cudaEventSynchronize")})  # fmt: skip


def test_which_work_a_reached_event_followed_is_not_known():
    reached, waited = graph(event(True)), graph(event(False))
    assert depends(waited, WAIT_END, 1) != [NOTHING] * waited.units
    late = graph(draw(kernels=" ##       ", host=["l         ", "      e   "], repeat=5,
                      legend={"e": ("calls", "cudaEventSynchronize")}))  # fmt: skip
    assert depends(late, WAIT_END, 1) == [NOTHING] * late.units
    stream = graph(draw(kernels=" ##       ", host=["l         ", "      s   "], repeat=5))
    assert depends(stream, WAIT_END, 1) != [NOTHING] * stream.units, "a stream's work is known"
    for each in (reached, waited, late, stream):
        assert abs(error(each)) < 1e-3


def behind_a_full_queue(*, ahead: int = 1_000, name: str = "cudaLaunchKernel") -> Timeline:
    """Kernels of 200 µs, each launched `ahead` kernels before it begins by a call that returns when another begins."""
    count, each = ahead + 60, 200_000
    begun = [BASE_NS + each * max(n - ahead, 0) + n for n in range(count)]
    calls = [{"name": name, "start_ns": at, "end_ns": at + (each - 5_000 if n > ahead else 0), "correlation": n} for n, at in enumerate(begun)]  # fmt: skip
    start = BASE_NS + count + 1_000
    kernels = [{"name": "some_kernel", "start_ns": start + each * n, "end_ns": start + each * (n + 1), "correlation": n} for n in range(count)]  # fmt: skip
    marks = [{"name": f"ProfilerStep#{n}", "start_ns": begun[ahead + 10 * n], "end_ns": begun[ahead + 10 * n + 9] + 1} for n in range(6)]  # fmt: skip
    return timeline(kernels=kernels, calls=calls, ranges=marks)


def test_a_launch_that_takes_long_behind_a_full_queue_waits_for_room():
    full = full_queue_launches(device_work(deep := behind_a_full_queue(), 0, 0), deep.calls)
    assert full.size == 59
    shallow = behind_a_full_queue(ahead=40)
    assert not full_queue_launches(device_work(shallow, 0, 0), shallow.calls).size, "it is slow, and waits for nothing"
    allocating = behind_a_full_queue(name="cudaMalloc")
    assert not full_queue_launches(device_work(allocating, 0, 0), allocating.calls).size


def test_a_queue_that_is_longer_than_the_period_holds_no_host_up_when_work_gets_shorter():
    of = graph_of(only_place(behind_a_full_queue()), most_units=2)
    assert of is not None
    assert (of.kind == WAIT_END).sum() == 20
    assert abs(error(of)) < 1e-3
    shorter = replace(of, duration_ns=np.where(of.kind == WORK, of.duration_ns // 2, of.duration_ns))
    assert simulate([shorter]).step_ns == pytest.approx(10 * 100_000, rel=0.02)


def test_work_behind_an_event_waits_for_the_other_stream():
    of = graph(draw(kernels=["##    ", "  ##  "], host="l w l  "[:6], host_ahead=2, repeat=5))
    other = of.depends[2][of.kind == WORK]
    works = np.flatnonzero(of.kind == WORK)
    assert other[1::2].tolist() == works[::2].tolist()
    of = replace(of, duration_ns=np.where(of.kind == WORK, 2 * of.duration_ns, of.duration_ns))
    assert simulate([of]).step_ns >= 8 * UNIT * (1 - 1e-9), "the two take turns"


def two_threads() -> Timeline:
    """The main thread launches, and waits while autograd's does."""
    return draw(kernels=" ##++  ", host={1: "l      ", 2: "   l   "}, repeat=5)


def test_a_thread_that_paused_was_woken_by_the_other():
    of = graph(two_threads())
    threads = of.place.timeline.calls["thread"][of.call_row]
    host = np.flatnonzero(of.kind == HOST)
    for node in host[1:].tolist():
        assert threads[of.depends[0][node]] != threads[node]
    assert abs(error(of)) < 1e-3


def literal(calls: list[tuple[int, int, str, int]], work: list[tuple[int, int, int]], steps: int = 5) -> Timeline:
    """Calls (start, end, name, correlation) and kernels (start, end, correlation) of one step of 1 ms, in µs."""
    ms = 1_000 * US
    rows, kernels, marks = [], [], []
    for number in range(steps):
        at = 10**10 + number * ms
        marks.append({"start_ns": at, "end_ns": at + ms, "name": f"ProfilerStep#{number}"})
        for start, end, name, correlation in calls:
            known = correlation + 100 * number if correlation >= 0 else -1
            rows.append({"start_ns": at + start * US, "end_ns": at + end * US, "name": name, "correlation": known})
        for start, end, correlation in work:
            known = correlation + 100 * number
            kernels.append({"start_ns": at + start * US, "end_ns": at + end * US, "name": "k", "correlation": known})
    return timeline(calls=rows, kernels=kernels, ranges=marks)


def test_calls_of_no_length_keep_their_order():
    """A recording of whole µs: a wait that takes none, and calls that begin as the one before ends."""
    names = ["cudaLaunchKernel", "cudaStreamSynchronize", "cudaStreamIsCapturing", "cudaLaunchKernel"]
    drawn = literal([(10, 10, names[0], 1), (30, 30, names[1], -1), (30, 30, names[2], -1), (30, 30, names[3], 2)],
                    [(15, 25, 1), (35, 600, 2)])  # fmt: skip
    of = graph(drawn)
    order = [(int(of.kind[node]), int(of.call_row[node] % 4)) for node in range(5) if of.kind[node] != WORK]
    assert order == [(HOST, 0), (HOST, 1), (WAIT_END, 1), (HOST, 2)]
    host = of.kind == HOST
    assert (of.depends[0][host] != np.flatnonzero(host)).all(), "none is left to itself"
    assert abs(error(of)) < 1e-3
    nothing = replace(
        of, duration_ns=np.zeros(len(of), np.int64), lag_ns=tuple(np.zeros_like(each) for each in of.lag_ns)
    )
    assert simulate([replace(nothing, extra_ns=np.zeros(len(of), np.int64))]).step_ns == 0


@pytest.mark.parametrize("inner", [(12, 18), (10, 20)])
def test_what_a_driver_call_launched_was_launched_by_the_call_around_it(inner):
    drawn = literal([(10, 20, "cudaLaunchKernelExC", -1), (*inner, "cuLaunchKernelEx", 1)], [(30, 600, 1)])
    of = graph(drawn)
    assert (of.kind == HOST).sum() == of.units, "one call, not two"
    assert (of.depends[1][of.kind == WORK] != NOTHING).all()
    later = replace(of, lag_ns=(of.lag_ns[0] + np.where(of.kind == HOST, 1_000 * US, 0), *of.lag_ns[1:]))
    assert simulate([later]).step_ns == pytest.approx(2_000 * US), "it depends on the host"


def test_a_launch_after_its_work_is_none():
    """Clocks that contradict each other tie nothing."""
    of = graph(literal([(10, 20, "cudaLaunchKernel", 1), (70, 80, "cudaLaunchKernel", 2)], [(15, 40, 1), (45, 600, 2)]))
    assert depends(of, WORK, 1).count(NOTHING) == of.units
    assert simulated_step([of]) == pytest.approx(simulate([of]).step_ns)


def test_work_a_little_before_its_launch_came_with_it():
    """Single latencies scatter around what clocks differ by."""
    of = graph(literal([(10, 20, "cudaLaunchKernel", 1), (50, 60, "cudaLaunchKernel", 2)], [(15, 40, 1), (45, 600, 2)]))
    assert depends(of, WORK, 1).count(NOTHING) == 0
    assert simulated_step([of]) == pytest.approx(simulate([of]).step_ns)
    assert abs(error(of)) < 1e-3


def test_what_stands_behind_such_work_on_its_stream_stays_behind_it():
    """The third piece, of which no launch is known, begins between the second one and that one's launch."""
    calls = [(10, 20, "cudaLaunchKernel", 1), (50, 60, "cudaLaunchKernel", 2)]
    of = graph(literal(calls, [(15, 40, 1), (45, 46, 2), (47, 600, 9)]))
    works = np.flatnonzero(of.kind == WORK)
    assert (of.recorded_start_ns[works[1:]] >= of.recorded_start_ns[works[:-1]]).all()
    assert simulated_step([of]) == pytest.approx(simulate([of]).step_ns)


def test_work_without_a_launch_belongs_to_the_step_of_what_ran_before_it_on_its_stream():
    """The host is a step and more ahead: by its own time such work would be of another step than its neighbours."""
    drawn = draw(kernels="##++e   ", host="ll      ", host_ahead=12, repeat=6)
    of = graph(drawn)
    works = of.work_row[of.kind == WORK]
    assert np.diff(works).tolist() == [1] * (3 * of.units - 1), "whole steps, one after the other"
    assert abs(error(of)) < 1e-3


def test_clocks_that_are_far_apart_keep_whole_steps():
    of = graph(draw(kernels=" ##++  ", host="l  l   ", host_ahead=-30, repeat=6))
    assert (of.kind == WORK).sum() == 2 * of.units
    assert depends(of, WORK, 1) == [NOTHING] * 2 * of.units
    assert abs(error(of)) < 1e-3

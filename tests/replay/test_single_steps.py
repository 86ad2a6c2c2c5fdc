"""Does a single step, replayed with a fix, become as long as by hand? Random programs on a machine in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builders import BASE_NS, timeline
from graphs import FEW
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.steps import Steps
from perfdoctor.model.timeline import Timeline
from perfdoctor.replay.edits.shorter import with_shorter_work, without_host_time
from perfdoctor.replay.graph.build import graph_of
from perfdoctor.replay.graph.graph import Graph
from perfdoctor.replay.graph.simulate import simulate

US = 1_000
LATENCY, CALL, RETURN = 5 * US, 4 * US, 3 * US
#: Clocks' slack of the replay, and what it rounds, over all calls of a program here.
SLACK = 40 * US


class Act(Struct, frozen=True):
    """One thing that the host does: `run` something of its own, `launch` a kernel, `copy` and wait for it, `sync`."""

    what: str
    us: int = 0
    stream: int = 7


class Ran(Struct, frozen=True):
    """What ran when: rows of calls and of work (start, end, stream, number of its call), and when all was over."""

    calls: list[tuple[str, int, int]]
    work: list[tuple[int, int, int, int, str]]
    own: list[tuple[int, int]]
    host_ns: int

    @property
    def step_ns(self) -> int:
        return max([self.host_ns, *(end for _, end, *_ in self.work)])


def ran(acts: Sequence[Act], begin: int = 0) -> Ran:
    """The machine: streams run in order, a copy and a sync hold the host until they are done."""
    now, streams, found = begin, {}, Ran([], [], [], 0)
    for act in acts:
        if act.what == "run":
            found.own.append((now, now + act.us * US))
            now += act.us * US
            continue
        called = now
        if act.what == "sync":
            now = max([now + CALL, *(end + RETURN for end in streams.values())])
            found.calls.append(("cudaDeviceSynchronize", called, now))
            continue
        start = max(called + LATENCY, streams.get(act.stream, 0))
        streams[act.stream] = end = start + act.us * US
        now = end + RETURN if act.what == "copy" else called + CALL
        found.work.append((start, end, act.stream, len(found.calls), act.what))
        found.calls.append(("cudaMemcpyAsync" if act.what == "copy" else "cudaLaunchKernel", called, now))
    return replace(found, host_ns=now)


def recorded(steps: Sequence[Ran]) -> Timeline:
    calls, kernels, copies, ops, marks = [], [], [], [], []
    begin = 0
    for number, step in enumerate(steps):
        marks.append({"name": f"ProfilerStep#{number}", "start_ns": BASE_NS + begin, "end_ns": BASE_NS + step.host_ns})
        begin = step.host_ns
        first = len(calls)
        calls += [
            {"name": name, "start_ns": BASE_NS + start, "end_ns": BASE_NS + end, "correlation": first + row + 1}
            for row, (name, start, end) in enumerate(step.calls)
        ]
        ops += [{"name": "own", "start_ns": BASE_NS + start, "end_ns": BASE_NS + end} for start, end in step.own]
        for start, end, stream, call, what in step.work:
            row = {"start_ns": BASE_NS + start, "end_ns": BASE_NS + end, "stream": stream, "correlation": first + call + 1}  # fmt: skip
            if what == "copy":
                copies.append({**row, "name": "Memcpy DtoH", "direction": "d2h", "host_memory": "pageable"})
            else:
                kernels.append({**row, "name": "kernel"})
    return timeline(calls=calls, kernels=kernels, copies=copies, ops=ops, ranges=marks, collectives=[])


def graph(*steps: Ran) -> Graph:
    (place,) = prepare(recorded(steps)).places
    found = graph_of(place)
    assert found is not None
    assert found.units == len(steps)
    return found


def work_rows(of: Graph, works: Sequence[tuple[int, int]]) -> np.ndarray:
    """These pieces of work, by start and stream."""
    work = of.place.work
    at = zip((work.start_ns - BASE_NS).tolist(), work.stream.tolist(), strict=True)
    return np.array([each in works for each in at])


def launched(step: Ran) -> list[tuple[int, int]]:
    return [(start, stream) for start, _, stream, _, what in step.work if what == "launch"]


@st.composite
def programs(draw_from: st.DrawFn) -> list[Act]:
    """Preparation on the host, launches on one stream or two with pauses, and often a call that waits at the end."""
    streams = st.sampled_from([7] if draw_from(st.booleans()) else [7, 8])
    acts = [Act("run", draw_from(st.integers(0, 3_000)))] if draw_from(st.booleans()) else []
    for _ in range(draw_from(st.integers(1, 8))):
        acts.append(Act("launch", draw_from(st.integers(20, 900)), draw_from(streams)))
        if draw_from(st.booleans()):
            acts.append(Act("run", draw_from(st.integers(30, 900))))
        if draw_from(st.integers(0, 5)) == 0:
            acts.append(Act("sync"))
    acts += draw_from(st.sampled_from([[], [Act("copy", 50)], [Act("sync")], [Act("copy", 400), Act("run", 300)]]))
    return acts


def without(acts: Sequence[Act], what: str, share: float, which: Sequence[bool]) -> list[Act]:
    chosen = iter(which)
    return [replace(act, us=round(act.us * (1 - share))) if act.what == what and next(chosen) else act for act in acts]


@FEW
@given(programs())
def test_a_single_step_is_replayed_as_long_as_it_was(acts):
    step = ran(acts)
    of = graph(step)
    assert of.place.window_ns == step.step_ns
    assert simulate([of]).step_ns == pytest.approx(step.step_ns, abs=SLACK)


def check(predicted: float, by_hand: int) -> None:
    assert by_hand / 2 - SLACK <= predicted <= by_hand + SLACK


@FEW
@given(programs(), st.sampled_from([0.3, 0.7, 1.0]), st.data())
def test_shorter_kernels_save_of_a_single_step_what_they_save_by_hand(acts, share, data):
    kernels = [act for act in acts if act.what == "launch"]
    which = data.draw(st.lists(st.booleans(), min_size=len(kernels), max_size=len(kernels)))
    slow, fast = ran(acts), ran(without(acts, "launch", share, which))
    of = graph(slow)
    rows = work_rows(of, [work for work, chosen in zip(launched(slow), which, strict=True) if chosen])
    fixed = with_shorter_work(of, rows, share)
    check(simulate([of]).step_ns - simulate([fixed]).step_ns, slow.step_ns - fast.step_ns)


@FEW
@given(programs(), st.sampled_from([0.3, 0.7, 1.0]), st.data())
def test_less_host_time_saves_of_a_single_step_what_it_saves_by_hand(acts, share, data):
    own = [act for act in acts if act.what == "run"]
    assume(own)
    which = data.draw(st.lists(st.booleans(), min_size=len(own), max_size=len(own)))
    slow, fast = ran(acts), ran(without(acts, "run", share, which))
    of = graph(slow)
    pieces = [(BASE_NS + a, BASE_NS + b) for (a, b), chosen in zip(slow.own, which, strict=True) if chosen]
    stretches = Intervals.of([a for a, _ in pieces], [b for _, b in pieces])
    check(
        simulate([of]).step_ns - simulate([without_host_time(of, stretches, share)]).step_ns,
        slow.step_ns - fast.step_ns,
    )


def test_a_copy_that_reaches_over_the_period_does_not_freeze_the_step():
    """Most of the kernels' time passes in the copy of the result, in which the host stands still."""
    acts = [Act("run", 5_000), *[Act("launch", 4_000)] * 10, Act("copy", 100), Act("run", 500)]
    slow = ran(acts)
    of = graph(slow)
    rows = work_rows(of, launched(slow))
    saved = simulate([of]).step_ns - simulate([with_shorter_work(of, rows, 0.5)]).step_ns
    assert saved == pytest.approx(20_000 * US, rel=0.01)


def test_a_period_whose_end_is_only_estimated_does_not_end_inside_a_call():
    """Where the next step's first launch was not recorded, the host's period is taken to be as long as the device's."""
    slow = ran([Act("run", 5_000), *[Act("launch", 4_000)] * 10, Act("copy", 100), Act("run", 500)])
    place = graph(slow).place
    bounds = np.array([place.work.start_ns[0], place.work.end_ns.max()])
    of = graph_of(replace(place, steps=Steps("user-range", "high", bounds, 0, 1, 0)))
    assert of is not None
    rows = work_rows(of, launched(slow))
    saved = simulate([of]).step_ns - simulate([with_shorter_work(of, rows, 0.5)]).step_ns
    assert saved == pytest.approx(20_000 * US, rel=0.01)


def test_host_time_in_front_and_behind_is_that_of_its_calls():
    acts = [Act("run", 3_000), Act("launch", 200), Act("copy", 100), Act("run", 1_000)]
    slow = ran(acts)
    of = graph(slow)
    for piece, us in zip(slow.own, (3_000, 1_000), strict=True):
        shorter = without_host_time(of, Intervals.single(*(BASE_NS + edge for edge in piece)), 1.0)
        assert simulate([of]).step_ns - simulate([shorter]).step_ns == pytest.approx(us * US, abs=SLACK)


def test_two_steps_are_replayed_one_behind_the_other():
    acts = [Act("run", 900), Act("launch", 2_000), Act("launch", 500, 8)]
    first = ran(acts)
    both = graph(first, ran(acts, begin=first.host_ns))
    assert simulate([both]).step_ns == pytest.approx(both.step_ns, abs=SLACK)


def test_a_wait_for_the_device_waits_for_every_stream():
    acts = [Act("launch", 2_000), Act("launch", 1_900, 8), Act("sync"), Act("run", 300)]
    slow = ran(acts)
    of = graph(slow)
    shorter = with_shorter_work(of, work_rows(of, launched(slow)[:1]), 1.0)
    assert simulate([of]).step_ns - simulate([shorter]).step_ns == pytest.approx(100 * US, abs=SLACK)

"""Time by module: what plain loops find, and sums that are whole whatever was recorded."""

from __future__ import annotations

import math
from collections import defaultdict

import msgspec
import pytest
from builders import BASE_NS, draw, timeline
from counters_builder import sampled
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.work.modules import module_costs, module_rates
from perfdoctor.model.timeline import merge

US = 1_000
LEGEND = {"X": ("modules", "Net"), "Y": ("modules", "Net.a"), "Z": ("modules", "Net.a.fc")}


def module(path, start, end, *, backward=False, **more):
    return {
        "start_ns": BASE_NS + start * US, "end_ns": BASE_NS + end * US, "name": path, "module_class": "Linear",
        "is_backward": backward, **more,
    }  # fmt: skip


def by_path(costs):
    return {cost.path: cost for cost in costs}


def launched(at, start, end, number, signal="kernels", **more):
    """A call, and the work that it launched."""
    call = {"start_ns": BASE_NS + at * US, "end_ns": BASE_NS + at * US + 500, "name": "cudaLaunchKernel"}
    work = {"start_ns": BASE_NS + start * US, "end_ns": BASE_NS + end * US, "name": "k"}
    return {**call, "correlation": number}, {**work, "correlation": number, **more}


def test_work_counts_for_the_innermost_module_around_its_launch_forward_and_backward():
    modules = [
        module("Net", 0, 40), module("Net.a", 10, 20), module("Net.b", 25, 35),
        module("Net.b", 50, 60, backward=True), module("Net.a", 60, 70, backward=True),
        module("Net.b", 62, 64),  # its forward once more, within the backward pass of another
    ]  # fmt: skip
    pairs = [
        launched(-5, 90, 95, 9), launched(5, 100, 110, 1), launched(12, 110, 130, 2), launched(30, 130, 160, 3), launched(45, 160, 165, 4),
        launched(52, 165, 185, 5), launched(61, 185, 192, 6), launched(63, 192, 193, 7),
    ]  # fmt: skip
    comm = launched(66, 193, 203, 8)
    run = prepare(timeline(
        modules=modules, kernels=[work for _, work in pairs], calls=[call for call, _ in pairs] + [comm[0]],
        collectives=[comm[1]],
    ))  # fmt: skip
    found = by_path(module_costs(run, None))
    own = {path: (cost.own_forward_ns / US, cost.own_backward_ns / US) for path, cost in found.items()}
    assert own == {"Net": (10, 0), "Net.a": (20, 17), "Net.b": (30, 21), "": (10, 0)}
    assert (found["Net"].forward_ns, found["Net"].backward_ns) == (60 * US, 38 * US)
    assert {path: cost.calls for path, cost in found.items()} == {"Net": 1, "Net.a": 1, "Net.b": 1, "": 0}
    assert {path: cost.exposed_communication_ns / US for path, cost in found.items()} == {
        "Net": 10, "Net.a": 10, "Net.b": 0, "": 0,
    }  # fmt: skip
    assert (found["Net.a"].depth, found["Net"].depth) == (1, 0)


def test_on_a_run_without_a_gpu_the_time_of_ops_and_the_pauses_between_them_are_the_modules():
    drawn = draw(
        host=["XXXXXXXXXXXXXXXXXXXX  ", " YYYYYYYYYY           ", "  ZZZ                 ", "oooo ooo oo   ooo o o "],
        legend=LEGEND, repeat=6, unit_us=1000,
    )  # fmt: skip
    found = by_path(module_costs(prepare(drawn), None))
    own = {path: cost.own_ns / 1e6 for path, cost in found.items()}
    assert own == {"Net": 5, "Net.a": 6, "Net.a.fc": 2, "": 1}
    assert found["Net"].ns == 13e6
    assert {path: cost.own_idle_ns / 1e6 for path, cost in found.items()} == {
        "Net": 5, "Net.a": 1, "Net.a.fc": 1, "": 1,
    }  # fmt: skip


def test_what_counters_saw_of_a_modules_kernels_is_weighted_by_their_time():
    """Net launches a product of 2 ms, Net.a a product of 3 ms and 1 ms of something else."""
    drawn = draw(
        kernels=" GG GGGe   ",
        host=["XXXXXXXXXX ", "  YYYYYY   "],
        legend=LEGEND,
        launched_us_before=50,
        repeat=40,
        unit_us=1000,
    )
    rates = {"gemm": {"tensor_active_share": 0.6, "sm_active_share": 0.9}, "elementwise": {"sm_active_share": 0.5}}
    run = prepare(sampled(drawn, rates))
    found = module_rates(run, ["Net", "Net.a", ""])
    assert found["tensor_active_share"][:2] == pytest.approx([0.6, 0.6 * 3 / 4], abs=0.01)
    assert found["sm_active_share"][:2] == pytest.approx([0.9, (0.9 * 3 + 0.5) / 4], abs=0.01)
    assert math.isnan(found["sm_active_share"][2])
    assert module_rates(prepare(drawn), ["Net"]) == {}


PATHS = st.sampled_from(["N", "N.a", "N.a.b", "N.ab", "M", "M.x"])
spans = st.tuples(st.integers(0, 60), st.integers(1, 40))


@given(
    st.lists(st.tuples(PATHS, spans, st.booleans(), st.sampled_from([1, 2])), max_size=12),
    st.lists(st.tuples(st.integers(0, 100), spans, st.sampled_from([1, 2]), st.booleans()), min_size=1, max_size=12),
)  # fmt: skip
def test_own_times_and_what_is_outside_sum_to_all_work(modules, works):
    """Also where rows overlap as no program's do, where calls are missing, and on two ranks."""
    rows = [module(path, at, at + size, backward=back, thread=thread) for path, (at, size), back, thread in modules]
    rows = rows or [module("N", 0, 1)]
    calls, kernels = [], []
    for number, (at, (start, size), thread, known) in enumerate(works, start=1):
        call, work = launched(at, start, start + size, number, stream=number)
        kernels.append(work)
        if known:
            calls.append({**call, "thread": thread})
    one = timeline(modules=rows, kernels=kernels, calls=calls)
    other = msgspec.structs.replace(one, frames={
        name: frame.with_columns(rank=frame["rank"] + 1) if len(frame) else frame for name, frame in one.frames.items()
    })  # fmt: skip
    run = prepare(merge([one, other]))
    costs = module_costs(run, None)
    whole = [sum(end - start for start, end in zip(p.work.start_ns, p.work.end_ns, strict=True)) for p in run.places]
    assert math.fsum(cost.own_ns for cost in costs) == pytest.approx(sum(whole) / 2, abs=1e-6)
    idle = [place.idle.total_ns for place in run.places]
    assert math.fsum(cost.own_idle_ns for cost in costs) <= sum(idle) / 2 + 1e-6
    inside = defaultdict(float)
    for cost in costs:
        for around in costs:
            if cost.path and (cost.path == around.path or cost.path.startswith(f"{around.path}.")):
                inside[around.path] += cost.own_ns if around.path else 0
    assert all(cost.ns == pytest.approx(inside[cost.path]) for cost in costs if cost.path)

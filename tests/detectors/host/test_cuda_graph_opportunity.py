"""cuda-graph-opportunity: the host is too slow, and every step launches the same kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from builders import draw, findings, only_finding, summary, timeline

from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.kernels.repetition import repetition
from perfdoctor.records.savings import Saving


def steps(*, busy: int = 5, period: int = 20, kernels: int = 5, repeat: int = 12, launch: str = "l", **more):
    """`kernels` launches a step, one each `period` units, each kernel `busy` units long; the host always in an op."""
    return draw(
        kernels=("  " + "#" * busy + " " * (period - busy - 2)) * kernels,
        host=[(launch + " " * (period - 1)) * kernels, "o" * (period * kernels)],
        repeat=repeat,
        unit_us=10,
        **more,
    )


def with_blocks(drawn, blocks):
    """The same picture, its kernels with these grids."""
    frames = {**drawn.frames, "kernels": drawn.kernels.with_columns(blocks=np.array(blocks, dtype=np.int64))}
    return type(drawn).build(frames, drawn.recorded)


def odd(number: int, *, repeat: int = 12):
    """In `number` of the steps in the middle one kernel has a grid of its own."""
    blocks = [8] * (5 * repeat)
    for step in range(number):
        blocks[5 * (step + 2) + 3] = 100 + step
    return with_blocks(steps(repeat=repeat), blocks)


def test_it_fires_where_all_steps_are_alike():
    shares = {"recoverable_share_low": 0.3, "recoverable_share_likely": 0.6, "recoverable_share_high": 0.95}
    finding = only_finding("cuda-graph-opportunity", odd(0), **shares)
    # five kernels of 50 µs, one each 200 µs: 750 of 1,000 µs idle
    assert (finding.values["idle_ms"], finding.values["step_ms"], finding.values["idle_percent"]) == (0.75, 1.0, 75.0)
    assert finding.values["kernels"] == 5
    assert finding.values["same"] == finding.values["steps"]
    assert finding.saving_ns_per_step == Saving(225_000, 450_000, 712_500)
    assert "exactly the same 5 kernels" in summary(finding)


def test_it_fires_where_one_step_in_ten_is_different():
    assert len(findings("cuda-graph-opportunity", odd(1))) == 1


def test_it_stays_silent_just_below_the_share_of_equal_steps():
    """Two of eleven: 82 %."""
    assert findings("cuda-graph-opportunity", odd(2)) == []


def test_it_stays_silent_where_every_step_has_other_shapes():
    assert findings("cuda-graph-opportunity", with_blocks(steps(), [8 + n // 5 for n in range(60)])) == []


def test_it_stays_silent_where_the_order_differs():
    blocks = [each for n in range(12) for each in ([1, 2, 3, 4, 5] if n % 2 else [1, 2, 4, 3, 5])]
    assert findings("cuda-graph-opportunity", with_blocks(steps(), blocks)) == []


def test_it_stays_silent_where_the_host_keeps_up():
    picture = draw(
        kernels="# # # # # # # # # # ", host=["l l l l l l l l l l ", "o" * 20], host_ahead=60, repeat=12, unit_us=10
    )
    assert findings("cuda-graph-opportunity", picture) == []


def test_it_stays_silent_where_graphs_are_replayed_already():
    assert findings("cuda-graph-opportunity", steps(launch="@")) == []


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_the_number_is_what_plain_counting_gives(number):
    (place,) = prepare(odd(number)).places
    bounds = place.steps.bounds[place.steps.first : place.steps.last + 1].tolist()
    rows = list(zip(place.kernels.start_ns.tolist(), place.kernels["blocks"].tolist(), strict=True))
    seen = [tuple(b for start, b in rows if low <= start < high) for low, high in itertools.pairwise(bounds)]
    assert repetition(place).same == max(seen.count(each) for each in seen)
    assert repetition(place).steps == len(seen)


def early_copies(*, unlinked: int = 0):
    """Six steps of four kernels, one each 250 µs. In each a copy runs first, on another stream: in turn before and behind
    the last kernel of the step before it. The calls of the first `unlinked` were not recorded.
    """
    us, rows = 1_000, {signal: [] for signal in ("kernels", "copies", "calls", "ops", "ranges", "collectives")}

    def asked(signal: str, number: int, launched: int, start: int, duration: int, **row) -> None:
        work = {"start_ns": start, "end_ns": start + duration, "name": "k", "correlation": number, "process": 100}
        rows[signal].append({**work, **row})
        if number > unlinked:
            call = {"start_ns": launched, "end_ns": launched + us, "name": "cudaLaunchKernel", "correlation": number}
            rows["calls"].append(call)

    for step in range(6):
        begin = (1_000 + 1_000 * step) * us
        early = 300 if step % 2 else 100
        asked("copies", 5 * step + 1, begin - 340 * us, begin - early * us, us, stream=14, bytes=1000)
        for each in range(4):
            start = begin + 250 * each * us
            asked("kernels", 5 * step + 2 + each, start - 200 * us, start, 40 * us, name=f"k{each}")
        mark = {"start_ns": begin - 350 * us, "end_ns": begin + 649 * us, "name": f"ProfilerStep#{step}"}
        rows["ranges"].append(mark)
    return timeline(**rows)


@pytest.mark.parametrize("unlinked", [0, 5])
def test_a_step_is_what_it_launched_and_not_what_ran_between_two_batches(unlinked):
    """The copy's start bounds the steps on the device: now and then a kernel of the step before runs behind it."""
    (place,) = prepare(early_copies(unlinked=unlinked)).places
    assert repetition(place).same == repetition(place).steps
    assert repetition(place).kernels == 4


def test_without_calls_a_step_is_what_ran_in_it():
    drawn = odd(0)
    empty = {**drawn.frames, "calls": drawn.calls.take(np.zeros(len(drawn.calls), dtype=bool))}
    (place,) = prepare(type(drawn).build(empty, drawn.recorded)).places
    assert repetition(place).kernels in (0, 5)

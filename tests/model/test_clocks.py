"""Is a device's clock that is off corrected by what must hold between calls and the work that they launch?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from builders import BASE_NS, draw, timeline
from folders import FIXTURES
from msgspec.structs import replace

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.clocks import QUEUE_LENGTH, clock_offset, on_host_clock
from perfdoctor.model.timeline import Ints, Timeline
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules

DEVICE = ("kernels", "copies", "collectives")
US = 1_000


def moved(recorded: Timeline, change: Callable[[Ints], Ints]) -> Timeline:
    """The recording by another clock of the device: host times are as they were."""
    frames = {
        signal: rows.with_columns(start_ns=change(rows.start_ns), end_ns=change(rows.end_ns))
        for signal in DEVICE
        if len(rows := recorded[signal])
    }
    return replace(recorded, frames={**recorded.frames, **frames})


def later(recorded: Timeline, us: float) -> Timeline:
    return moved(recorded, lambda times: times + round(us * US))


def launch_bound(latency_us: int = 7, kernels: int = 60) -> Timeline:
    """Kernels of 20 µs, each launched 50 µs after the one before on an idle device."""
    call = [{"start_ns": BASE_NS + 50 * US * n, "end_ns": BASE_NS + (50 * n + 4) * US} for n in range(kernels)]
    work = [
        {"start_ns": each["start_ns"] + latency_us * US, "end_ns": each["start_ns"] + (latency_us + 20) * US}
        for each in call
    ]
    return timeline(
        kernels=[{**each, "name": "gemm", "correlation": n} for n, each in enumerate(work)],
        calls=[{**each, "name": "cudaLaunchKernel", "correlation": n} for n, each in enumerate(call)],
    )


def full_queue(since_us: int, back_us: int) -> Timeline:
    """Kernels back to back, all launched long before, and a wait for the device that returns after the last one."""
    at = BASE_NS + since_us * US
    launches = [
        {
            "name": "cudaLaunchKernel",
            "start_ns": BASE_NS + 5 * US * n,
            "end_ns": BASE_NS + (5 * n + 3) * US,
            "correlation": n,
        }
        for n in range(20)
    ]
    kernels = [
        {"name": "gemm", "start_ns": at + 500 * US * n, "end_ns": at + 500 * US * (n + 1), "correlation": n}
        for n in range(20)
    ]
    end = at + 500 * US * 20 + back_us * US
    wait = {"name": "cudaDeviceSynchronize", "start_ns": BASE_NS + 200 * US, "end_ns": end, "correlation": 99}
    return timeline(kernels=kernels, calls=[*launches, wait])


@pytest.mark.parametrize("us", [0, 5, 12])
def test_clocks_that_agree_are_left_alone(us):
    recorded = launch_bound(3 + us)
    assert on_host_clock(recorded) is recorded


@pytest.mark.parametrize("us", [-5_000, -81, -40, -8, 20, 40, 150])
def test_a_clock_that_is_off_is_moved_until_the_latency_is_usual_and_it_is_said_once(us):
    corrected = on_host_clock(later(launch_bound(), us))
    assert (corrected.kernels.start_ns - corrected.calls.start_ns == 8 * US).all()
    assert (corrected.kernels.duration_ns == 20 * US).all()
    (note,) = corrected.notes
    assert f"{abs(us - 1)} µs off the host's" in note
    assert ("seems to be" in note) == (us > 0)
    assert ("stood before the calls" in note) == (us < -7)
    assert on_host_clock(corrected) is corrected


def test_single_pieces_of_work_before_their_launch_move_nothing():
    recorded = launch_bound()
    wrong = recorded.kernels.start_ns.copy()
    wrong[[7, 31]] -= 45 * US
    kernels = recorded.kernels.with_columns(start_ns=wrong).sorted()
    assert not clock_offset(replace(recorded, frames={**recorded.frames, "kernels": kernels}), 0, 0)


def test_what_waits_long_on_an_idle_device_does_not_pass_for_a_late_clock():
    """Every second kernel waits for an event of another device."""
    recorded = launch_bound()
    late = recorded.kernels.start_ns + np.where(np.arange(60) % 2, 15 * US, 0)
    kernels = recorded.kernels.with_columns(start_ns=late, end_ns=late + 20 * US)
    assert not clock_offset(replace(recorded, frames={**recorded.frames, "kernels": kernels}), 0, 0)


def test_clocks_that_nothing_brings_together_are_said_to_be_uncertain():
    """Each piece of work stands by another time before its launch."""
    recorded = launch_bound()
    scattered = recorded.kernels.start_ns - np.arange(60) * 37 * US
    kernels = recorded.kernels.with_columns(start_ns=scattered, end_ns=scattered + 5 * US).sorted()
    corrected = on_host_clock(replace(recorded, frames={**recorded.frames, "kernels": kernels}))
    assert "no shift of the GPU's clock explains it" in corrected.notes[-1]
    assert on_host_clock(corrected).notes == corrected.notes, "it is said once"


@pytest.mark.parametrize(("returns_after_us", "is_moved"), [(3, False), (60, False), (-20, True)])
def test_a_wait_for_the_device_shows_whether_launches_take_long_or_the_clock_is_late(returns_after_us, is_moved):
    """Launches of 40 µs, and one wait for the last kernel."""
    recorded = launch_bound(40)
    end = int(recorded.kernels.end_ns[-1])
    wait = {
        "name": "cudaDeviceSynchronize",
        "start_ns": end - 15 * US,
        "end_ns": max(end + returns_after_us * US, end - 15 * US),
    }
    calls = timeline(calls=[wait]).calls
    whole = recorded.with_frame("calls", type(recorded.calls).join([recorded.calls, calls]))
    corrected = on_host_clock(whole)
    assert (corrected is not whole) == is_moved
    assert not is_moved or "was 32 µs off the host's" in corrected.notes[-1]


@pytest.mark.parametrize("ppm", [-400, -40, 40])
def test_a_drift_is_taken_out(ppm):
    recorded = launch_bound(kernels=12_000)  # 0.6 s: 24 µs
    zero = int(recorded.kernels.start_ns[0])
    corrected = on_host_clock(moved(recorded, lambda t: t + np.rint((t - zero) * ppm * 1e-6).astype(np.int64)))
    since = corrected.kernels.start_ns - corrected.calls.start_ns
    assert np.ptp(since) < 1 * US
    assert f"drifted by {abs(ppm)} ppm" in corrected.notes[-1]


def test_a_full_queue_shows_no_latency_and_is_left_alone():
    recorded = full_queue(since_us=300, back_us=10)
    assert on_host_clock(recorded) is recorded
    assert on_host_clock(full_queue(since_us=3_000_000, back_us=40)).notes == ()


def test_work_that_outlasts_the_wait_for_it_is_moved_before_its_return():
    corrected = on_host_clock(full_queue(since_us=300, back_us=-40))
    assert corrected.calls.end_ns[-1] - corrected.kernels.end_ns[-1] == 5 * US


def test_no_more_can_have_been_launched_and_not_begun_than_the_queue_holds():
    """Kernels of 100 µs, of which CUDA's queue is full: each launch returns when there is room."""
    count, each = QUEUE_LENGTH + 200, 100 * US
    kernels = [
        {
            "name": "gemm",
            "start_ns": BASE_NS + 50 * US + each * n,
            "end_ns": BASE_NS + 50 * US + each * (n + 1),
            "correlation": n,
        }
        for n in range(count)
    ]
    calls = [
        {
            "name": "cudaLaunchKernel",
            "start_ns": at,
            "end_ns": max(at + US, BASE_NS + 50 * US + each * (n - QUEUE_LENGTH)),
            "correlation": n,
        }
        for n in range(count)
        for at in [BASE_NS + max(n, 50 * US + each * (n - QUEUE_LENGTH) - each // 2)]
    ]
    recorded = timeline(kernels=kernels, calls=calls)
    assert on_host_clock(recorded) is recorded
    for ms in (3, 150):
        corrected = on_host_clock(later(recorded, 1_000 * ms))
        assert (corrected.kernels.start_ns == recorded.kernels.start_ns).all()
        assert "off the host's" in corrected.notes[-1]


def test_too_little_work_for_a_usual_latency_is_moved_behind_its_launches():
    corrected = on_host_clock(later(launch_bound(7, 2), -30))
    assert (corrected.kernels.start_ns >= corrected.calls.start_ns).all()


def test_each_device_has_a_clock_of_its_own():
    right, left = launch_bound(), later(launch_bound(), -40)
    both = {
        signal: [
            {**{name: column[row] for name, column in rows.to_numpy().items()}, "rank": rank}
            for rank, rows in enumerate((right[signal], left[signal]))
            for row in range(len(rows))
        ]
        for signal in ("kernels", "calls")
    }
    corrected = on_host_clock(timeline(**both))
    for rank in (0, 1):
        since = corrected.kernels.of(rank=rank).start_ns - corrected.calls.of(rank=rank).start_ns
        assert set(since.tolist()) == {(7, 8)[rank] * US}
    assert "rank 1 was 41 µs off" in corrected.notes[-1]


def test_a_recording_without_calls_says_nothing_of_clocks():
    recorded = draw(kernels="## ## ##")
    assert (
        on_host_clock(replace(recorded, frames={**recorded.frames, "calls": recorded.calls.take(slice(0, 0))})).notes
        == ()
    )


@pytest.mark.parametrize("us", [-40, 40])
@pytest.mark.parametrize("case", ["launch-bound", "sync-drains-queue", "h100-80gb-hbm3-fp32-matmuls"])
def test_the_diagnosis_is_the_same_with_a_clock_that_is_off(case, us):
    recorded, rules = read([FIXTURES / case / "torch"]), list(load_rules().values())
    first, other = (diagnose(each, rules) for each in (recorded, on_host_clock(later(recorded, us))))
    assert first.findings[0].rule == other.findings[0].rule
    shares = [each.findings[0].saving_ns_per_step.likely / each.base_ns for each in (first, other)]
    assert shares[0] == pytest.approx(shares[1], abs=0.02)

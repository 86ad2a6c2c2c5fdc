"""Nsight Systems and torch.profiler agree on the same work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from folders import FIXTURES
from recorded import parameter, recording

from perfdoctor.metrics.accounting.split import split, whole_recording
from perfdoctor.model.device_work import launch_rows
from perfdoctor.model.timeline import UNKNOWN, Timeline

BOTH = sorted(folder.parent for folder in FIXTURES.glob("*/torch") if (folder.parent / "nsys").is_dir())
each_pair = pytest.mark.parametrize("case", [parameter(path / "both", path) for path in BOTH])


def pair(case: Path) -> tuple[Timeline, Timeline]:
    return recording(case / "nsys").timeline, recording(case / "torch").timeline


def relative(timeline: Timeline, signal: str, rank: int) -> list[tuple[int, int, str]]:
    """One rank's rows of a signal, times since its first kernel: the tools' clocks start elsewhere."""
    frame = timeline[signal].of(rank=rank)
    zero = int(timeline.kernels.of(rank=rank).start_ns[0])
    names = [name if signal != "copies" else "" for name in frame.name]
    return sorted(zip((frame.start_ns - zero).tolist(), (frame.end_ns - zero).tolist(), names, strict=True))


def test_there_are_pairs() -> None:
    assert len(BOTH) >= 15


@each_pair
def test_both_hold_the_same_rows_to_the_nanosecond(case: Path) -> None:
    nsys, kineto = pair(case)
    assert nsys.ranks == kineto.ranks
    for signal in ("kernels", "collectives", "copies", "calls", "ops", "ranges"):
        for rank in nsys.ranks:
            assert relative(nsys, signal, rank) == relative(kineto, signal, rank), signal


def launches(timeline: Timeline, signal: str, rank: int) -> list[tuple[int, int, str, int]]:
    """One rank's device work of a signal: its start, and the call that launched it (thread, name, start)."""
    work, calls = timeline[signal].of(rank=rank), timeline.calls
    zero = int(timeline.kernels.of(rank=rank).start_ns[0])
    rows = launch_rows(work, calls)
    assert (rows != UNKNOWN).all(), f"{signal} without a launch"
    found = ((calls["thread"][r], calls.name[r], calls.start_ns[r] - zero) for r in rows.tolist())
    return sorted(
        (int(at) - zero, int(thread), name, int(start))
        for at, (thread, name, start) in zip(work.start_ns, found, strict=True)
    )


@each_pair
def test_both_join_all_device_work_with_the_call_that_launched_it(case: Path) -> None:
    nsys, kineto = pair(case)
    for signal in ("kernels", "collectives", "copies"):
        for rank in nsys.ranks:
            assert launches(nsys, signal, rank) == launches(kineto, signal, rank), signal


@each_pair
def test_both_count_waits_and_repeated_ranges_as_no_work(case: Path) -> None:
    for timeline in pair(case):
        marks = [name for name in timeline.ranges.name if name.startswith("ProfilerStep#")]
        assert len(marks) == 8 * len(timeline.ranks)
        assert not {"cudaEventSynchronize", "cudaStreamSynchronize"} & set(timeline.kernels.name)


@each_pair
def test_both_agree_on_kernels_and_collectives(case: Path) -> None:
    nsys, kineto = pair(case)
    for column in ("blocks", "threads_per_block", "stream", "device"):
        assert np.array_equal(nsys.kernels[column], kineto.kernels[column]), column
    assert list(nsys.collectives.text("kind")) == list(kineto.collectives.text("kind"))


@each_pair
def test_both_account_for_time_alike(case: Path) -> None:
    runs = [recording(case / tool).run for tool in ("nsys", "torch")]
    for ours, theirs in zip(runs[0].places, runs[1].places, strict=True):
        assert ours.steps.found_by == theirs.steps.found_by
        for left, right in (
            (split(ours), split(theirs)),
            (split(whole_recording(ours)), split(whole_recording(theirs))),
        ):
            for part in (
                "window_ns",
                "compute_ns",
                "communication_ns",
                "copy_ns",
                "exposed_communication_ns",
                "exposed_copy_ns",
                "idle_ns",
                "kernel_count",
            ):
                assert getattr(left, part) == getattr(right, part), part
            assert left.idle_causes_ns == right.idle_causes_ns
            assert left.compute_by_family_ns == right.compute_by_family_ns


@each_pair
def test_both_know_which_memory_a_copy_used(case: Path) -> None:
    nsys, kineto = (timeline.copies for timeline in pair(case))
    for column in ("direction", "host_memory"):
        assert list(nsys.text(column)) == list(kineto.text(column))
    assert np.array_equal(nsys["bytes"], kineto["bytes"])

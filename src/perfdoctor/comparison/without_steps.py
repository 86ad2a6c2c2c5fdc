"""What is compared of recordings without a timeline: kernels that were measured alone, and snapshots of memory?

A kernel that Nsight Compute measured counts with the mean of its launches, each size by itself: the reports differ by
how often it was measured. The sum of all is what takes the place of a step; what limits each kernel, of a part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfdoctor.comparison.records import (
    Comparison,
    HolderChange,
    Memory,
    MemoryChange,
    Snapshot,
    StepChange,
    StepSide,
    WorkTime,
)
from perfdoctor.metrics.kernels.kernel_limits import measured_kernels
from perfdoctor.model.timeline import UNKNOWN, Timeline

#: What a step is called of kernels that were measured alone.
LAUNCH = "launch of each measured kernel"
#: In front of the key of KERNEL_LIMITS, in the place of a kernel's family.
LIMIT = "limit:"
#: Of the lines that hold memory at the peak, so many that changed most are listed.
_MOST_LISTED = 8
#: A peak that differs by less is the same: the allocator rounds, and blocks of other streams come and go.
_SAME_PEAK = 0.01


def measured_work(timeline: Timeline) -> tuple[WorkTime, ...]:
    """One launch of each kernel that was measured, in ns, by what limits it; () where none was."""
    return tuple(
        WorkTime(
            "compute", f"{LIMIT}{each.limit}", each.name, "", f"[{each.blocks}, {each.threads_per_block}]", "", "", "",
            each.ns / each.launches, 1.0,
        )
        for each in measured_kernels(timeline)
    )  # fmt: skip


def of_memory(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> Comparison | None:
    """The comparison of peaks where no run has any time, and all have memory; else None."""
    if any(each.step_ns or not each.memory for each in (*before, *after)):
        return None
    changes = tuple(memory_changes(before, after))
    was, now = (max(use.peak_bytes for each in side for use in each.memory) for side in (before, after))
    change = now / was - 1 if was > 0 else 0.0
    sides = [StepSide(0.0, 0.0, len(side), 0, (), 0.0, "usual") for side in (before, after)]
    step = StepChange(sides[0], sides[1], change, None, None, change, None, None, "no change", None, unrecorded=False)
    is_same = abs(change) <= _SAME_PEAK
    return Comparison(
        before=tuple(each.name for each in before), after=tuple(each.name for each in after), step=step, basis="",
        without_gpu=False, settings=(), unknown_settings=(), before_ns=0, after_ns=0, difference_ns=0, recording_ns=0,
        causes=(), work=(), work_rest_ns=0, work_rest_count=0, findings=(), promises=(), memory=changes,
        peaks=(was, now), of_peaks="no change" if is_same else "more memory" if change > 0 else "less memory",
    )  # fmt: skip


def memory_changes(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> Iterator[MemoryChange]:
    """The peak of each device that both sides know, and of the lines that held memory then those that changed most."""
    sides = [_peaks(side) for side in (before, after)]
    for place in sorted(sides[0].keys() & sides[1].keys()):
        was, now = sides[0][place], sides[1][place]
        yield MemoryChange(*place, was.peak_bytes, now.peak_bytes, _holders(was, now))


def _peaks(runs: Sequence[Snapshot]) -> dict[tuple[int, int], Memory]:
    """The most that each device held in any of the runs, by rank and device."""
    known = sorted(
        (use for run in runs for use in run.memory if use.peak_bytes != UNKNOWN), key=lambda use: use.peak_bytes
    )
    return {(use.rank, use.device): use for use in known}


def _holders(was: Memory, now: Memory) -> tuple[HolderChange, ...]:
    if not was.holders or not now.holders:  # one side did not record them
        return ()
    least = [_least_listed(side) for side in (was, now)]
    unlisted = [UNKNOWN if each else 0 for each in least]
    found = []
    for line in dict.fromkeys((*was.holders, *now.holders)):
        change = HolderChange(line, was.holders.get(line, unlisted[0]), now.holders.get(line, unlisted[1]))
        at_most = was.holders.get(line, least[0]), now.holders.get(line, least[1])
        found.append((abs(at_most[1] - at_most[0]), change))
    found.sort(key=lambda each: -each[0])
    return tuple(each for size, each in found[:_MOST_LISTED] if size)


def _least_listed(use: Memory) -> int:
    """The least of a line that is listed, where others hold the rest of the peak; 0 where all are listed."""
    return min(use.holders.values()) if sum(use.holders.values()) < use.peak_bytes else 0

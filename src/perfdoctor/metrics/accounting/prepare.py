"""Which devices of which ranks can be analysed, and in which steps? A Timeline becomes a Run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from perfdoctor.metrics.accounting.driving_threads import host_activity
from perfdoctor.metrics.accounting.host_place import host_place
from perfdoctor.metrics.accounting.idle_causes import idle_causes
from perfdoctor.metrics.accounting.inferred_waits import with_inferred_waits
from perfdoctor.metrics.accounting.lost_launches import whole_steps, whole_stretch
from perfdoctor.metrics.accounting.outliers import without_odd_step, without_pauses
from perfdoctor.metrics.accounting.selection import different, narrowed, range_names
from perfdoctor.metrics.copies.transfers import between_early_copies
from perfdoctor.model.device_work import device_work
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import WHOLE_RECORDING, Job, Run, Selection
from perfdoctor.model.steps import NO_STEPS, Confidence, device_steps, host_marks
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.time_split import StepStats

#: Copies alone that take less of the time are those of a program whose kernels were not recorded.
_LEAST_COPYING = 0.05


def prepare(timeline: Timeline, selection: Selection = WHOLE_RECORDING) -> Run:
    """The run with steps and windows of every device; where none was recorded, the training thread stands in for it.

    `selection` limits it to a part of the recording. Raises UsageError where the recording does not have that part.
    """
    timeline = with_inferred_waits(timeline)
    places: list[Place] = []
    for rank in timeline.ranks:
        marks = host_marks(timeline, rank)
        devices = [device for of_rank, device in timeline.places if of_rank == rank]
        if devices:
            host = host_activity(timeline, rank)
            for device in devices:
                work = device_work(timeline, rank, device)
                steps = device_steps(timeline, work, marks, timeline.kernels.of(rank=rank, device=device))
                steps = whole_steps(timeline, rank, work, steps)
                window = Intervals.of(steps.used_bounds[:1], steps.used_bounds[-1:])
                if not window:  # no steps, or all work was launched at one moment: none to separate
                    steps, window = NO_STEPS, whole_stretch(timeline, rank, work)
                places.append(DevicePlace(timeline, rank, device, window, steps, work, host))
        elif not timeline.places:
            place = host_place(timeline, rank, marks)
            if place is not None:
                places.append(place)
    analysed = narrowed(
        [place for place in places if place.window] if _has_work(timeline, places) else [], timeline, selection
    )
    if selection != WHOLE_RECORDING:
        return Run(timeline, analysed, selection)
    plain, paused = without_pauses(analysed, timeline)
    usual, odd = without_odd_step(plain)
    return Run(timeline, tuple(usual), selection, odd_step=odd, paused_steps=paused)


def _has_work(timeline: Timeline, places: Sequence[Place]) -> bool:
    """Is more known of the devices than a few copies? Without kernels idle time says nothing of what they were for."""
    if len(timeline["kernels"]) or len(timeline["collectives"]):
        return True
    return any(place.device is None or place.share(place.copying.total_ns) >= _LEAST_COPYING for place in places)


def selection_notes(run: Run) -> Iterator[str]:
    """Sentences that say which part of the recording was analysed, if not all of it."""
    if run.paused_steps:
        several = run.paused_steps > 1
        yield (
            f"{run.paused_steps} of the recorded steps hold{'' if several else 's'} something that does not come in "
            "every step, and no numbers are of them: it is a part of the whole run."
        )
    selection, steady = run.selection, [place.steps for place in run.places if place.steps.steady]
    if selection.steps and steady:
        first, last = selection.steps
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        yield f"Only {steps} of {min(every[1] - every[0] for each in steady if (every := each.steady))} was analysed."
    if selection.range_name:
        names = " and ".join(sorted(different(range_names(run.timeline, selection.range_name))))
        count = sum(place.steps.used for place in run.places)
        yield (
            f"Only the range {names} was analysed, {count} executions: numbers are for one of them. "
            "Its time is that of the work that it launched, and of idle at its edges while the host was in it."
        )


def step_stats(run: Job[JobPlace]) -> StepStats:
    """How the steps were found and how long they are, over all places."""
    found = [place.steps for place in run.places if place.steps.used]
    if not found:
        return StepStats()
    durations = np.concatenate([steps.durations_ns for steps in found])
    p10, median, p90 = (round(float(value)) for value in np.quantile(durations, (0.1, 0.5, 0.9)))
    used = min(steps.used for steps in found)
    weakest: Sequence[Confidence] = ("low", "medium", "high")
    return StepStats(
        count=max(steps.count for steps in found),
        used=used,
        median_ns=median,
        p10_ns=p10,
        p90_ns=p90,
        found_by=found[0].found_by,
        confidence=min((steps.confidence for steps in found), key=weakest.index),
        marked_by=run.timeline.steps_marked_by if found[0].found_by == "profiler-step" else "",
        durations_ns=tuple(
            np.mean([steps.durations_ns[:used] for steps in found], axis=0).round().astype(int).tolist()
        ),
    )


class DevicePlace(Place, frozen=True):
    """A Place whose compute is the kernels of a GPU."""

    @cached_property
    def idle_causes(self) -> Mapping[str, Intervals]:
        return idle_causes(self.idle, self.work, self.timeline.calls, self.host, between_early_copies(self))

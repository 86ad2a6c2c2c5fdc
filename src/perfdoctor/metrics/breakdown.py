"""Where did the time of one device go? Its window, cut into compute, exposed communication, exposed copies and idle.

```
window  = compute + exposed communication + exposed copies + idle        exactly, in integer ns
compute = union over all streams of kernels that are not collectives
exposed communication = communication - compute
exposed copies = copies - compute - communication
idle = window - everything
```
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfdoctor.findings import KERNEL_FAMILIES, MATH_PATHS, TimeSplit
from perfdoctor.metrics.idle_causes import HostActivity, idle_causes
from perfdoctor.timeline import kernel_names
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.links import DeviceWork
from perfdoctor.timeline.model import Device, Frame, Timeline
from perfdoctor.timeline.steps import NO_STEPS, Steps

#: The families whose kernels multiply matrices and could run on tensor cores.
MATMUL_FAMILIES = ("gemm", "convolution", "attention")


def _union(frame: Frame, window: Intervals) -> Intervals:
    return Intervals.of(frame.start_ns, frame.end_ns) & window


@dataclass(frozen=True)
class Place:
    """One device of one rank in the window looked at, with everything that follows from it, computed once.

    `device` is None where the training thread plays the device. `steps.used` is 0 where no steps were found: then
    numbers "per step" are per window, and `per_step` divides by one.
    """

    timeline: Timeline
    rank: int
    device: int | None
    window: Intervals
    steps: Steps
    work: DeviceWork
    host: HostActivity
    #: When the host asked for the window's work, where the window is that of a range: its executions.
    asked: Intervals | None = None

    @property
    def window_ns(self) -> int:
        return self.window.total_ns

    @property
    def units(self) -> int:
        """How many steps the window holds; 1 where no steps were found."""
        return max(self.steps.used, 1)

    def per_step(self, quantity: float) -> int:
        """A quantity of the whole window, for one step."""
        return round(quantity / self.units)

    def share(self, part_ns: float) -> float:
        return part_ns / self.window_ns if self.window_ns else 0.0

    @property
    def info(self) -> Device:
        return self.timeline.device_of(self.rank, -1 if self.device is None else self.device)

    def _own(self, signal: str) -> Frame:
        """This device's rows that touch the window."""
        frame = self.timeline[signal]
        if self.device is None:
            return frame.take(np.zeros(len(frame), dtype=bool))
        rows = frame.of(rank=self.rank, device=self.device)
        if not self.window:
            return rows.take(np.zeros(len(rows), dtype=bool))
        if len(self.window) > 1:  # pieces: what ran between them is not looked at
            return rows.take(self.window.overlap_ns(rows.start_ns, rows.end_ns) > 0)
        return rows.take((rows.end_ns > self.window.starts[0]) & (rows.start_ns < self.window.ends[-1]))

    @cached_property
    def kernels(self) -> Frame:
        return self._own("kernels")

    @cached_property
    def recorded_collectives(self) -> Frame:
        """Those of the whole recording, also outside the window."""
        return self.timeline.collectives.of(rank=self.rank, device=self.device or 0)

    @cached_property
    def collectives(self) -> Frame:
        return self._own("collectives")

    @cached_property
    def copies(self) -> Frame:
        return self._own("copies")

    @cached_property
    def compute(self) -> Intervals:
        return _union(self.kernels, self.window)

    @cached_property
    def communication(self) -> Intervals:
        return _union(self.collectives, self.window)

    @cached_property
    def copying(self) -> Intervals:
        return _union(self.copies, self.window)

    @cached_property
    def exposed_communication(self) -> Intervals:
        return self.communication - self.compute

    @cached_property
    def exposed_copies(self) -> Intervals:
        return self.copying - self.compute - self.communication

    @cached_property
    def idle(self) -> Intervals:
        return self.window - (self.compute | self.communication | self.copying)

    @cached_property
    def idle_causes(self) -> dict[str, Intervals]:
        return idle_causes(self.idle, self.work, self.timeline.calls, self.host)

    def idle_ns(self, cause: str) -> int:
        return self.idle_causes[cause].total_ns

    @cached_property
    def kernel_ns(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """How long each row of `kernels` ran inside the window, in ns (overlapping kernels each count in full)."""
        return self.window.overlap_ns(self.kernels.start_ns, self.kernels.end_ns)

    def alone_ns(self, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        """How long these rows of `kernels`, and no other kernel, kept the device computing inside the window, in ns."""
        start, end = self.kernels.start_ns, self.kernels.end_ns
        others = Intervals.of(start[~rows], end[~rows])
        return ((Intervals.of(start[rows], end[rows]) & self.window) - others).total_ns

    def kernel_rows(self, *families: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """One bool a row of `kernels`: is it of one of these families?"""
        return self.kernels.name.where(lambda name: kernel_names.family(name) in families)


def split(place: Place) -> TimeSplit:
    """The accounting of one place as plain numbers."""
    result = TimeSplit(
        rank=place.rank,
        device=place.device,
        window_start_ns=int(place.window.starts[0]) if place.window else 0,
        window_ns=place.window_ns,
        step_ns=place.per_step(place.window_ns) if place.steps.used else None,
        compute_ns=place.compute.total_ns,
        exposed_communication_ns=place.exposed_communication.total_ns,
        exposed_copy_ns=place.exposed_copies.total_ns,
        idle_ns=place.idle.total_ns,
        communication_ns=place.communication.total_ns,
        hidden_communication_ns=(place.communication & place.compute).total_ns,
        copy_ns=place.copying.total_ns,
        kernel_count=len(place.kernels) + (0 if place.device is None else len(place.collectives)),
        idle_causes_ns={cause: pieces.total_ns for cause, pieces in place.idle_causes.items()},
        compute_by_family_ns=_by_family(place),
        matmul_ns_by_math_path=_by_math_path(place),
    )
    _self_check(result)
    return result


def _self_check(result: TimeSplit) -> None:
    parts = result.compute_ns + result.exposed_communication_ns + result.exposed_copy_ns + result.idle_ns
    assert parts == result.window_ns, "the parts of a window must sum to it"
    assert sum(result.idle_causes_ns.values()) == result.idle_ns, "the causes of idle must sum to it"


def _by_family(place: Place) -> dict[str, int]:
    """Kernel time by family, in ns; kernels that overlap each count in full."""
    return {family: int(place.kernel_ns[place.kernel_rows(family)].sum()) for family in KERNEL_FAMILIES}


def _by_math_path(place: Place) -> dict[str, int]:
    matmul = place.kernel_rows(*MATMUL_FAMILIES)
    paths = {p: place.kernels.name.where(lambda name, p=p: kernel_names.math_path(name) == p) for p in MATH_PATHS}  # type: ignore[misc]
    return {path: int(place.kernel_ns[matmul & rows].sum()) for path, rows in paths.items()}


def whole_recording(place: Place) -> Place:
    """The same place, from its first to its last event on the device instead of its steady steps."""
    if place.device is None or not len(place.work):
        return place
    window = Intervals.single(int(place.work.start_ns[0]), int(place.work.end_ns.max()))
    return Place(place.timeline, place.rank, place.device, window, NO_STEPS, place.work, place.host)

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

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import Keeps, once_per_place
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.steps import Steps
from perfdoctor.model.timeline import Device, Frame, Ints, Mask, Timeline
from perfdoctor.vocabulary.names import kernels as kernel_names


class HostActivity(Struct, frozen=True):
    """The activities of the threads that drive one rank's device, as sets of instants.

    `explicit` maps a cause to the instants in which a range, op or call proves it, in order of precedence.
    `once`: what comes once, loading code (at a kernel's first launch, most often) and capturing a graph; `first_ops`:
    the first runs of ops, outside of launching, where they took far longer than the later ones.
    `visible` is any other range, op or function that is not a whole step or more; `in_system` any call of the operating
    system, None where none was recorded of these threads; `in_calls` any CUDA call;
    `launching` the stretches in which work was launched without a longer pause; `blocking` the rows of `timeline.calls`
    whose names say that they wait for the device. `in_view` says whether anything but calls was recorded of the host,
    `ops_recorded` whether the framework's ops were, `graph_nodes_recorded` whether CUDA graphs show their kernels.
    """

    explicit: Mapping[str, Intervals]
    profiler: Intervals
    in_calls: Intervals
    launching: Intervals
    once: Intervals
    first_ops: Intervals
    files: Intervals
    visible: Intervals
    between_steps: Intervals
    blocking: Ints
    ops_recorded: bool
    in_view: bool
    graph_nodes_recorded: bool = True
    in_system: Intervals | None = None


def touches(rows: Frame, window: Intervals) -> Mask:
    """One bool a row: does it touch the window?"""
    if not window:
        return np.zeros(len(rows), dtype=bool)
    if len(window) > 1:  # pieces: what ran between them is not analysed
        pieces: Mask = window.overlap_ns(rows.start_ns, rows.end_ns) > 0
        return pieces
    found: Mask = (rows.end_ns > window.starts[0]) & (rows.start_ns < window.ends[-1])
    return found


class JobPlace(Keeps, frozen=True):
    """One device of one rank of a job in the analysed window: what is known of it however much of the rank was kept.

    `device` is None where the training thread stands in for it. `steps.used` is 0 where no steps were found: then
    numbers "per step" are per window, and `per_step` divides by one.
    """

    timeline: Timeline
    rank: int
    device: int | None
    window: Intervals
    steps: Steps

    @property
    def rank_and_device(self) -> tuple[int, int]:
        """Rank and device as findings name them; device 0 if the training thread takes the place of a device."""
        return self.rank, self.device or 0

    @property
    def window_ns(self) -> int:
        """How long the window is, in ns: all steps that are analysed."""
        return self.window.total_ns

    @property
    def units(self) -> int:
        """How many steps the window holds; 1 where no steps were found."""
        return max(self.steps.used, 1)

    def per_step(self, quantity: float) -> int:
        """A quantity of the whole window, for one step.

        Args:
            quantity: The quantity, in any unit.

        Returns:
            The quantity of one step, rounded; of the window, where no steps were found.
        """
        return round(quantity / self.units)

    def share(self, part_ns: float) -> float:
        """A time as a share of the window.

        Args:
            part_ns: A time of the whole window, in ns.

        Returns:
            The share, from 0 to 1.
        """
        return part_ns / self.window_ns if self.window_ns else 0.0

    @property
    @abstractmethod
    def info(self) -> Device:
        """What is known of this GPU."""

    @property
    @abstractmethod
    def recorded_collectives(self) -> Frame:
        """This device's collectives in the whole recording, also outside the window."""

    @property
    @abstractmethod
    def collectives(self) -> Frame:
        """This device's collectives that touch the window."""

    @property
    @abstractmethod
    def compute(self) -> Intervals:
        """When any kernel ran inside the window."""

    @property
    @abstractmethod
    def communication(self) -> Intervals:
        """When any collective ran inside the window."""

    @property
    @abstractmethod
    def exposed_communication(self) -> Intervals:
        """When a collective ran and no kernel did."""

    @property
    @abstractmethod
    def exposed_copies(self) -> Intervals:
        """When something was copied and nothing else ran."""

    @property
    @abstractmethod
    def idle(self) -> Intervals:
        """When neither a kernel, nor a collective, nor a copy ran on the device inside the window."""

    @property
    @abstractmethod
    def idle_causes(self) -> Mapping[str, Intervals]:
        """Which instants of `idle` had which cause: disjoint, together exactly `idle`. Keys are `IDLE_CAUSES`."""

    @property
    def parts(self) -> Mapping[str, Intervals]:
        """When each part of the step was going on: they cover the window, and do not overlap. Keys are `PARTS`."""
        return {
            "compute": self.compute,
            "exposed_communication": self.exposed_communication,
            "exposed_copy": self.exposed_copies,
            **self.idle_causes,
        }

    def idle_ns(self, cause: str) -> int:
        """How long the device was idle for one cause in the window.

        Args:
            cause: The cause, a key of `idle_causes`.

        Returns:
            The time in ns.
        """
        return self.idle_causes[cause].total_ns


class Place(JobPlace, frozen=True):
    """A device whose rows were read, with everything that follows from them, computed once."""

    work: DeviceWork
    host: HostActivity
    #: When the host asked for the window's work, where the window is that of a range: its executions.
    asked: Intervals | None = None

    def forget(self) -> None:
        """Drop all that is worked out again when it is asked for."""
        self.kept.next_round(1)
        for name in [name for name in vars(self) if name != "kept"]:
            del vars(self)[name]

    @property
    def info(self) -> Device:
        """The recorded facts about this GPU."""
        return self.timeline.device_of(self.rank, -1 if self.device is None else self.device)

    @once_per_place
    def recorded(self, signal: str) -> Frame:
        """This device's kernels, copies or collectives in the whole recording."""
        return self.timeline[signal].of(rank=self.rank, device=self.device or 0)

    @once_per_place
    def in_window(self, signal: str) -> Mask:
        """One bool a row of `recorded`: does it touch the window?"""
        return touches(self.recorded(signal), self.window)

    @once_per_place
    def own(self, signal: str) -> Frame:
        """This device's kernels, copies or collectives that touch the window."""
        return self.recorded(signal).take(self.in_window(signal))

    @cached_property
    def kernels(self) -> Frame:
        """This device's kernels that touch the window, without collectives."""
        return self.own("kernels")

    @property
    def recorded_collectives(self) -> Frame:
        """The collectives of the whole recording, also outside the window."""
        return self.recorded("collectives")

    @cached_property
    def collectives(self) -> Frame:
        """This device's collectives that touch the window."""
        return self.own("collectives")

    @cached_property
    def copies(self) -> Frame:
        """This device's copies and fills of memory that touch the window."""
        return self.own("copies")

    @cached_property
    def compute(self) -> Intervals:
        """When any kernel ran inside the window."""
        return self.kernels.intervals & self.window

    @cached_property
    def communication(self) -> Intervals:
        """When any collective ran inside the window."""
        return self.collectives.intervals & self.window

    @cached_property
    def copying(self) -> Intervals:
        """When anything was copied inside the window."""
        return self.copies.intervals & self.window

    @cached_property
    def exposed_communication(self) -> Intervals:
        """When a collective ran and no kernel did."""
        return self.communication - self.compute

    @cached_property
    def exposed_copies(self) -> Intervals:
        """When something was copied and nothing else ran."""
        return self.copying - self.compute - self.communication

    @cached_property
    def idle(self) -> Intervals:
        """When neither a kernel, nor a collective, nor a copy ran on the device inside the window."""
        return self.window - (self.compute | self.communication | self.copying)

    @cached_property
    def kernel_ns(self) -> Ints:
        """How long each row of `kernels` ran inside the window, in ns (overlapping kernels each count in full)."""
        return self.window.overlap_ns(self.kernels.start_ns, self.kernels.end_ns)

    def alone_ns(self, rows: Mask) -> int:
        """How long these kernels, and no other, kept the device computing inside the window.

        Args:
            rows: One bool a row of `kernels`.

        Returns:
            The time in ns.
        """
        start, end, touching = self.kernels.start_ns, self.kernels.end_ns, self._touching
        own, other = touching[rows[touching]], touching[~rows[touching]]
        beside_none = rows.copy()
        beside_none[touching] = False
        among_others = (Intervals.of(start[own], end[own]) & self.window) - Intervals.of(start[other], end[other])
        return int(self.kernel_ns[beside_none].sum()) + among_others.total_ns

    @cached_property
    def _touching(self) -> Ints:
        """Rows of `kernels` that run at the same time as another one: few on most devices."""
        start, end = self.kernels.start_ns, self.kernels.end_ns
        overlaps = start[1:] < np.maximum.accumulate(end)[:-1]
        found = np.zeros(start.size, dtype=bool)
        found[1:] = overlaps
        found[:-1] |= start[1:] < end[:-1]
        return np.flatnonzero(found)

    def kernel_rows(self, *families: str) -> Mask:
        """Which kernels are of one of these families?

        Args:
            *families: The families: `"gemm"`, `"attention"`, `"optimizer"`, …

        Returns:
            One bool a row of `kernels`.
        """
        return self.kernels.name.has(kernel_names.family, *families)

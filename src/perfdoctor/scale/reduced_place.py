"""One rank by its summary: a Place that answers what rules about several ranks ask, and nothing else.

Its window, steps and collectives are those of the rank. Each part of its window is exact between any two edges of its
communication and steps; inside, it stands in one piece. Copies beside compute are left out. Results of functions that
are kept with a place (`model/cache.py`) were worked out when the rank was read; everything else that needs rows of
kernels, calls or ops raises `NotInSummaryError`: such questions are asked of ranks that were read in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NoReturn, cast

import numpy as np
from msgspec import field
from msgspec.structs import replace

from perfdoctor.metrics.accounting.split import split
from perfdoctor.metrics.communication.collectives import proven_messages
from perfdoctor.metrics.host.pace import sooner_ns, spare_ns
from perfdoctor.metrics.kernels.same_kernels import kernel_time_ns, medians_of
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.host_activity import HostActivity
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Device, Frame, Timeline
from perfdoctor.scale.summary import NOWHERE, Columns, PlaceSummary, collectives, intervals
from perfdoctor.vocabulary.parts import IDLE_CAUSES


class NotInSummaryError(LookupError):
    """A question that only a rank that was read in full can answer: the caller's mistake."""


class _Missing:
    """Stands for what was not kept of a rank."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInSummaryError(f"a rank's summary has no {self._what}.{name}")


class ReducedPlace(Place, frozen=True, dict=True):
    """See the module. `pieces`: each part of the window; parts that it lacks took no time."""

    device_info: Device = field(default_factory=lambda: Device(0, 0))
    pieces: Mapping[str, Intervals] = field(default_factory=dict)
    communicating: Intervals = field(default_factory=Intervals.empty)
    arrived: Frame = field(default_factory=lambda: Frame.empty("collectives"))

    @property
    def info(self) -> Device:
        return self.device_info

    def recorded(self, signal: str) -> Frame:
        if signal != "collectives":
            raise NotInSummaryError(f"a rank's summary has no {signal}")
        return self.arrived

    def _part(self, name: str) -> Intervals:
        return self.pieces.get(name, NOWHERE)

    @cached_property
    def compute(self) -> Intervals:
        return self._part("compute")

    @cached_property
    def communication(self) -> Intervals:
        return self.communicating

    @cached_property
    def exposed_communication(self) -> Intervals:
        return self._part("exposed_communication")

    @cached_property
    def copying(self) -> Intervals:
        return self._part("exposed_copy")

    @cached_property
    def exposed_copies(self) -> Intervals:
        return self._part("exposed_copy")

    @cached_property
    def idle(self) -> Intervals:
        return self.window - (self.compute | self.exposed_communication | self.exposed_copies)

    @cached_property
    def idle_causes(self) -> Mapping[str, Intervals]:
        return {cause: self._part(cause) for cause in IDLE_CAUSES}


def reduced_place(summary: PlaceSummary, rank: int, timeline: Timeline, columns: Columns) -> ReducedPlace:
    """The place of one summary. `rank`: its number in the job; `timeline`: what is known of the job beside places.

    `columns`: those of other places of the job.
    """
    place = ReducedPlace(
        timeline,
        rank,
        summary.device,
        intervals(summary.window),
        summary.steps.steps(),
        cast("DeviceWork", _Missing("work")),
        cast("HostActivity", _Missing("host")),
        device_info=summary.info,
        pieces={part: intervals(pieces) for part, pieces in summary.pieces.items() if pieces.count},
        communicating=intervals(summary.communication),
        arrived=collectives(summary, rank, columns),
    )
    _keep(place, split, replace(summary.split, rank=rank))
    _keep(place, spare_ns, summary.spare_ns)
    _keep(place, sooner_ns, summary.sooner_ns)
    _keep(place, kernel_time_ns, summary.kernel_time_ns)
    messages = np.zeros(len(place.collectives), dtype=bool)
    messages[summary.messages.values()] = True
    _keep(place, proven_messages, messages)
    _keep(place, medians_of, {(each.name, each.blocks): (each.per_step, each.median_ns) for each in summary.kernels})
    return place


def _keep(place: Place, function: Callable[[Place], Any], result: object) -> None:
    """What `function(place)` gives from now on."""
    place.kept[function.__wrapped__, ((), ())] = result  # type: ignore[attr-defined]

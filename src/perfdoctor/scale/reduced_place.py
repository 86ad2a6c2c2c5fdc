"""One rank by its summary: a place that answers what rules about several ranks ask.

Its window, steps and collectives are those of the rank. Each part of its window is exact between any two edges of its
communication and steps; inside, it stands in one piece. Copies beside compute are left out. Results of functions that
are `kept_in_summaries` (`model/cache.py`) were worked out when the rank was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import field
from msgspec.structs import replace

from perfdoctor.metrics.accounting.split import split
from perfdoctor.metrics.communication.collectives import proven_messages
from perfdoctor.metrics.host.pace import sooner_ns, spare_ns
from perfdoctor.metrics.kernels.same_kernels import kernel_time_ns, medians_of
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import JobPlace, touches
from perfdoctor.model.timeline import Device, Frame, Timeline
from perfdoctor.scale.summary import NOWHERE, PlaceSummary, UnpackedColumns, collectives, intervals
from perfdoctor.vocabulary.parts import IDLE_CAUSES


class ReducedPlace(JobPlace, frozen=True, dict=True):
    """See the module. `pieces`: each part of the window; parts that it lacks took no time.

    `arrived`: the collectives of the whole recording.
    """

    info: Device = field(default_factory=lambda: Device(0, 0))
    pieces: Mapping[str, Intervals] = field(default_factory=dict)
    communication: Intervals = field(default_factory=Intervals.empty)
    arrived: Frame = field(default_factory=lambda: Frame.empty("collectives"))

    @property
    def recorded_collectives(self) -> Frame:
        return self.arrived

    @cached_property
    def collectives(self) -> Frame:
        return self.arrived.take(touches(self.arrived, self.window))

    def _part(self, name: str) -> Intervals:
        return self.pieces.get(name, NOWHERE)

    @property
    def compute(self) -> Intervals:
        return self._part("compute")

    @property
    def exposed_communication(self) -> Intervals:
        return self._part("exposed_communication")

    @property
    def exposed_copies(self) -> Intervals:
        return self._part("exposed_copy")

    @cached_property
    def idle(self) -> Intervals:
        return self.window - (self.compute | self.exposed_communication | self.exposed_copies)

    @cached_property
    def idle_causes(self) -> Mapping[str, Intervals]:
        return {cause: self._part(cause) for cause in IDLE_CAUSES}


def reduced_place(summary: PlaceSummary, rank: int, timeline: Timeline, columns: UnpackedColumns) -> ReducedPlace:
    """The place of one summary. `rank`: its number in the job; `timeline`: what is known of the job beside places.

    `columns`: those of other places of the job.
    """
    place = ReducedPlace(
        timeline,
        rank,
        summary.device,
        intervals(summary.window),
        summary.steps.steps(),
        summary.info,
        {part: intervals(pieces) for part, pieces in summary.pieces.items() if pieces.count},
        intervals(summary.communication),
        collectives(summary, rank, columns),
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


def _keep(place: JobPlace, function: Callable[[JobPlace], Any], result: object) -> None:
    """What `function(place)` gives from now on."""
    place.kept[function.__wrapped__, ((), ())] = result  # type: ignore[attr-defined]

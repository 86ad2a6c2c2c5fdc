"""One GPU of one rank as a Place: its idle time is explained by the calls that launched its work."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from perfdoctor.metrics.accounting.idle_causes import idle_causes
from perfdoctor.metrics.copies.transfers import between_early_copies
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place


class DevicePlace(Place, frozen=True):
    """A Place whose compute is the kernels of a GPU."""

    @cached_property
    def idle_causes(self) -> Mapping[str, Intervals]:
        return idle_causes(self.idle, self.work, self.timeline.calls, self.host, between_early_copies(self))

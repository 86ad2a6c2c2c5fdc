"""Which groups of ranks are far slower than the other groups of the job at the same messages?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdoctor.late import dataclass
from perfdoctor.metrics.communication.collectives import Bandwidth, bandwidths
from perfdoctor.model.run import Run
from perfdoctor.vocabulary.kinds import ON_RINGS


@dataclass(frozen=True)
class SlowGroup:
    """One group's messages; the middle one of all such groups, in bytes/s of bus bandwidth, and how many others."""

    own: Bandwidth
    usual_bytes_per_second: float
    others: int

    @property
    def longer_ns(self) -> float:
        """How much longer a step its transfers take than they would at the usual speed."""
        return self.own.transfer_ns * (1 - self.own.bus_bytes_per_second / self.usual_bytes_per_second)


def slow_groups(run: Run, at: Mapping[str, float]) -> list[SlowGroup]:
    """The one that loses most first. `at`: the thresholds of slow-links."""
    alike: dict[tuple[str, int, int, bool], list[Bandwidth]] = {}
    for each in bandwidths(run, at["large_message_bytes"]):
        if each.kind in ON_RINGS:
            alike.setdefault((each.kind, each.ranks, each.message_bytes, each.one_node), []).append(each)
    found: list[SlowGroup] = []
    for groups in alike.values():
        others = len(groups) - 1
        if others < at["fewest_other_groups"]:
            continue
        usual = float(np.median([each.bus_bytes_per_second for each in groups]))
        least = at["min_share_of_others"] * usual
        found += [SlowGroup(each, usual, others) for each in groups if each.bus_bytes_per_second < least]
    return sorted(found, key=lambda group: -group.longer_ns)

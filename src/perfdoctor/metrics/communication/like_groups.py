"""Which groups of ranks are far slower than the other groups of the job at the same messages?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.collectives import Bandwidth, bandwidths
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Job
from perfdoctor.vocabulary.kinds import ON_RINGS


class SlowGroup(Struct, frozen=True):
    """One group's messages; the middle one of all such groups, in bytes/s of bus bandwidth, and how many others."""

    own: Bandwidth
    usual_bytes_per_second: float
    others: int

    @property
    def longer_ns(self) -> float:
        """How much longer a step its transfers take than they would at the usual speed."""
        return self.own.transfer_ns * (1 - self.own.bus_bytes_per_second / self.usual_bytes_per_second)


def slow_groups(run: Job[JobPlace], min_bytes: float, fewest_others: float, least_share: float) -> list[SlowGroup]:
    """Those with messages of `min_bytes` and more that reach less than this share of what the middle one of at least
    `fewest_others` and one does; the one that loses most first.
    """
    alike: dict[tuple[str, int, int, bool], list[Bandwidth]] = {}
    for each in bandwidths(run, min_bytes):
        if each.kind in ON_RINGS:
            alike.setdefault((each.kind, each.ranks, each.message_bytes, each.one_node), []).append(each)
    found: list[SlowGroup] = []
    for groups in alike.values():
        others = len(groups) - 1
        if others < fewest_others:
            continue
        usual = float(np.median([each.bus_bytes_per_second for each in groups]))
        found += [SlowGroup(each, usual, others) for each in groups if each.bus_bytes_per_second < least_share * usual]
    return sorted(found, key=lambda group: -group.longer_ns)

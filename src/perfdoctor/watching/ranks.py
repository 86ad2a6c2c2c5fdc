"""Which rank falls behind the others? Ranks that wait for each other in each step all take as long as the slowest.

So their lengths do not say who it is. What a rank does by itself does: waiting for its next batch, and its training
thread's time on a core. The others wait for it in a collective, in which they do neither. Where there is a GPU, the
threads of those that wait spin (`loss.item()`), and only batches say who it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.watching.rows import RankSteps, Stretch, per_step

#: So many of the latest unrecorded stretches of each rank are compared at least, and so long a time. Steps of 0.25 ms
#: make a thousand stretches in that.
STRETCHES, LEAST_NS, MOST_STRETCHES = 6, 5_000_000_000, 1_000
#: A rank is behind if it does so much of a step more by itself than the others do.
LEAST_SHARE = 0.10
#: Steps that ranks without collectives are apart, as a share of what was made.
_LEAST_LAG = 0.05
_MOST_LAG_NS = 2_000_000_000


class Behind(Struct, frozen=True):
    """`more_ns` of a step, which is `share` of it, `rank` does more than the others. `cause`: most of that is this."""

    rank: int
    more_ns: float
    share: float
    cause: str


def latest(rank: RankSteps) -> Sequence[Stretch]:
    """The last unrecorded stretches; none if they do not last long enough."""
    found: list[Stretch] = []
    for each in reversed(rank.stretches[-MOST_STRETCHES:]):
        if each.recorded:
            continue
        found.append(each)
        if len(found) >= STRETCHES and found[0].end - each.end >= LEAST_NS:
            return found[::-1]
    return ()


def behind(ranks: Mapping[int, RankSteps]) -> Behind | None:
    """The rank that keeps the others waiting; None where there is none, or only one rank."""
    known = {number: found for number, each in ranks.items() if (found := latest(each))}
    if len(known) < 2:
        return None
    waits = {number: float(np.median(per_step(found, "wait"))) for number, found in known.items()}
    on_cores = not any(each.uses_gpu for each in ranks.values())
    hosts = {number: float(np.median(per_step(found, "host"))) for number, found in known.items() if on_cores}
    step_ns = float(np.median([np.median(per_step(found, "sum")) for found in known.values()]))
    return compared(waits, hosts, step_ns)


def compared(waits: Mapping[int, float], hosts: Mapping[int, float], step_ns: float) -> Behind | None:
    """The rank that does most by itself, of ns a step that each waits for batches and is on a core.

    `hosts`: none where they train on GPUs.
    """
    if len(waits) < 2:
        return None
    # A batch that the training thread makes itself is in both.
    own = {number: max(waits[number], hosts.get(number, 0.0)) for number in waits}
    slowest = max(own, key=lambda each: own[each])
    others = [number for number in waits if number != slowest]
    more = own[slowest] - float(np.median([own[each] for each in others]))
    if more < LEAST_SHARE * step_ns:
        return None
    waits_more = waits[slowest] - float(np.median([waits[each] for each in others])) >= more / 2
    return Behind(slowest, more, more / step_ns, "input" if waits_more else "host")


def lagging(ranks: Mapping[int, RankSteps]) -> tuple[int, int] | None:
    """(rank, steps) of ranks that do not wait for each other: who has made so many fewer than the others."""
    if len(ranks) < 2:
        return None
    ends = [each.stretches[-1].end for each in ranks.values()]
    if max(ends) - min(ends) > _MOST_LAG_NS:  # one has not written for a while: that is no lag
        return None
    made = {number: each.steps for number, each in ranks.items()}
    slowest = min(made, key=lambda each: made[each])
    usual = float(np.median([steps for number, steps in made.items() if number != slowest]))
    longest = max(each.stretches[-1].steps for each in ranks.values())
    few = usual - made[slowest]
    return (slowest, int(few)) if few > max(_LEAST_LAG * usual, 2 * longest) else None

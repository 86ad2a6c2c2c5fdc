"""Who waits for whom where lateness goes on from group to group, or along a pipeline?

Who waited for a late rank comes late to its next meeting, and looks late there. All ranks are replayed together with
one rank's work as its peers do it: who is late is whose work makes the step long, whoever is waited for.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.communication.messages import pipelines
from perfdoctor.metrics.communication.nodes import first_ranks, spans
from perfdoctor.metrics.communication.persistence import Persistence, persistence_of
from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.metrics.communication.waiting import LateNode, Waiting
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Ints
from perfdoctor.replay.job.late import late_nodes, late_ranks
from perfdoctor.replay.job.lines import own_by_step_ns
from perfdoctor.replay.job.of_run import communicating


def replayed_waiting(run: Run, matched: Skew, clear_share: float, most_chance: float) -> Waiting | None:
    """Who waits for whom by a replay of all ranks; None where all meet in all collectives, or it cannot be replayed.

    `clear_share`: of all lateness makes a rank the reason; `most_chance`: that it is chance.
    """
    places = communicating(run)
    stages = pipelines(places)
    if not matched.has_several_groups and not stages.any():
        return None
    found = late_ranks(run)
    if found is None:
        return None
    saved_ns = np.maximum(found.saved_ns, 0.0)
    # Of ranks that are equally late none alone saves anything: then the one that works longest is named.
    latest = int(np.lexsort((found.excess_ns, saved_ns))[-1])
    late, others = places[latest], [place for number, place in enumerate(places) if number != latest]
    peers = [place for place, stage in zip(places, stages.tolist(), strict=True) if stage == stages[latest]]
    peers = [place for place in peers if place is not late]
    excess_ns = max(found.step_ns - found.ideal_ns, 1.0)
    own_ns = np.rint(saved_ns * late.units).astype(np.int64)
    late_share = float(min(saved_ns[latest] / excess_ns, 1.0))
    node = _late_node(run, late_share, clear_share)
    again = _again(late, peers)
    is_again = again.chance <= most_chance or (again.is_short and again.mostly)
    is_clear = node is None and is_again and late_share >= clear_share
    likely_ns = float(saved_ns[latest]) if node is None else excess_ns * node.share
    return Waiting(
        places=places,
        own_late_ns=own_ns,
        late=late,
        others=others,
        peers=peers,
        is_clear=is_clear,
        late_again=again,
        late_share=late_share,
        late_node=node,
        waiting_ns=int(excess_ns),
        most_ns=int(excess_ns),
        until_next_ns=int(min(likely_ns, excess_ns)),
        sooner_ns=int(excess_ns),
        ahead_ns=_ahead_ns(late, peers),
        is_replayed=True,
    )


def _by_step_ns(late: JobPlace, peers: list[JobPlace]) -> tuple[Ints, list[Ints]]:
    """The own work of each, a number a step; of ranks with fewer steps nothing."""
    own = own_by_step_ns(late)
    return own, [steps for place in peers if (steps := own_by_step_ns(place)).size == own.size]


def _again(late: JobPlace, peers: list[JobPlace]) -> Persistence:
    """Does it take longer than its peers in one step after the other?"""
    own, others = _by_step_ns(late, peers)
    return persistence_of(own, others)


def _ahead_ns(late: JobPlace, peers: list[JobPlace]) -> int:
    """By how much its own work takes longer than that of the middle one of its peers, in ns a step."""
    own, others = _by_step_ns(late, peers)
    if not others or not own.size:
        return 0
    return int(own.mean() - np.median([each.mean() for each in others]))


def _late_node(run: Run, late_share: float, clear_share: float) -> LateNode | None:
    """The machine whose ranks are late together, where no rank is the reason by itself."""
    nodes, places = late_nodes(run), communicating(run)
    if nodes is None or nodes.owners.size < 2 or late_share >= clear_share:
        return None
    latest = int(nodes.saved_ns.argmax())
    first = first_ranks(places)
    if first is None or nodes.shares[latest] < clear_share:
        return None
    members = [place.rank for place, of in zip(places, first.tolist(), strict=True) if of == nodes.owners[latest]]
    return LateNode(spans(members), float(min(nodes.shares[latest], 1.0)))

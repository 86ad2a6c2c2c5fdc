"""How long do ranks wait in collectives for one that comes late, is it the same one again, and what does that cost?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.queued import LONGEST_LATENCY_NS
from perfdoctor.metrics.communication import lateness
from perfdoctor.metrics.communication.merged_collectives import can_be_merged, evened_ns
from perfdoctor.metrics.communication.nodes import first_ranks, spans
from perfdoctor.metrics.communication.persistence import Persistence, chance_of, persistence
from perfdoctor.metrics.communication.skew import Skew
from perfdoctor.metrics.host.pace import sooner_ns
from perfdoctor.metrics.host.same_work import MOST_OF_IT
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Ints
from perfdoctor.vocabulary.parts import IDLE_PARTS

#: What a program's own code does, or waits for, instead of the ranks' common work.
_OF_HOST = frozenset(cause for cause, part in IDLE_PARTS.items() if part.waits_for in {"host", "loader"})


class LateNode(Struct, frozen=True):
    """A machine whose ranks come late by turns, and their share of all lateness."""

    ranks: str
    share: float


class Waiting(Struct, frozen=True):
    """Who waits for whom. In ns a step: `waiting_ns` of the others and `most_ns` that can be saved of it;
    `until_next_ns` up to when the next rank comes, `sooner_ns` by which the hosts of all waiting ranks could have been
    sooner; `ahead_ns`, by which the late rank waits less than the middle one of the others.

    `peers`: those of the others that do the same work. `own_late_ns`: by how much each of the ranks was late by its own
    doing, in ns of its window. `is_clear`: is one rank the reason for most of the waiting, and `late_again` by more
    than chance?
    """

    places: Sequence[JobPlace]
    own_late_ns: Ints
    late: JobPlace
    others: Sequence[JobPlace]
    peers: Sequence[JobPlace]
    is_clear: bool
    late_again: Persistence
    late_share: float
    late_node: LateNode | None
    waiting_ns: int
    most_ns: int
    until_next_ns: int
    sooner_ns: int
    ahead_ns: int
    #: Is it known by a replay of all ranks together, how late each is and what that costs?
    is_replayed: bool = False

    @property
    def likely_ns(self) -> int:
        """What a fix saves: the waiting ranks go on as soon as the next rank comes, and as their own hosts can."""
        return min(self.until_next_ns, self.sooner_ns)


def waiting(run: Run, matched: Skew, clear_share: float, most_chance: float) -> Waiting:
    """Who waits for whom. `clear_share`: of all lateness makes a rank the reason; `most_chance`: that it is chance."""
    # Of a process with several devices the one that its collectives run on.
    places = [place for place in run.job.places if len(place.collectives)]
    own = lateness.own_lateness_ns(places, matched)
    late = places[int(np.lexsort((matched.waiting_ns, -own))[0])]
    others = [place for place in places if place is not late]
    late_share, node = _who(places, matched, own, clear_share)
    # How much of its lateness would go with it: little where another one comes just before it.
    of_its_own = matched.caused_alone_ns(late.rank) / max(int(matched.caused_ns[matched.number(late.rank)]), 1)
    late_again = persistence(places, matched, np.array([matched.number(late.rank)]))
    # Ranks with devices of their own seldom take turns: of few steps, which rule nothing out, most have to do.
    few_do = late_again.is_short and late_again.mostly and late.device is not None
    is_again = late_again.chance <= most_chance or few_do or _does_it_again(run, late, matched, most_chance)
    is_clear = node is None and is_again and min(late_share, of_its_own) >= clear_share
    # Without a GPU ranks that share cores are late by turns: that goes where messages are merged, or stays.
    by_turns_ns = evened_ns(run.job, matched) if host_places(run) and (can_be_merged(run) or not is_clear) else 0
    waiting_ns = max(int(np.mean(_exposed_waits_ns(run, others, matched, pushed=is_clear))) - by_turns_ns, 0)
    if matched.has_several_groups:
        waiting_ns = int(waiting_ns * lateness.explained_share(own, matched))
    most_ns = min(waiting_ns, _sooner_ns(others, np.median, waiting_ns))
    sooner_ns = most_ns
    if matched.has_several_groups and (is_clear or node):
        # Who waits for a rank in one group is waited for in the next: all that is waited for goes back to it.
        share = late_share if is_clear or node is None else node.share
        until_next_ns = min(int(waiting_ns * share), most_ns)
    elif is_clear:
        # The fix is on one rank: all others, also the last of them, must be able to go on then.
        of_late = np.where(matched.last == matched.number(late.rank), matched.behind_ns, 0)
        caused_ns = np.mean(_exposed_waits_ns(run, others, matched, of_late, pushed=True))
        until_next_ns, sooner_ns = min(int(caused_ns), most_ns), _sooner_ns(others, np.min, waiting_ns)
    else:  # Whoever is late comes as the middle one does: the rank that waits longest wins all of that.
        until_next_ns = min(int(max(_exposed_waits_ns(run, others, matched, matched.late_by_ns))), most_ns)
    number = matched.number(late.rank)
    ahead_ns = int((np.median(np.delete(matched.waiting_ns, number)) - matched.waiting_ns[number]) / late.units)
    return Waiting(
        places=places,
        own_late_ns=own,
        late=late,
        others=others,
        peers=others,
        is_clear=is_clear,
        late_again=late_again,
        late_share=late_share,
        late_node=node,
        waiting_ns=waiting_ns,
        most_ns=most_ns,
        until_next_ns=until_next_ns,
        sooner_ns=sooner_ns,
        ahead_ns=ahead_ns,
    )


def _does_it_again(run: Run, late: JobPlace, matched: Skew, most_chance: float) -> bool:
    """Does the late rank's host do again and again what makes it late? On busy cores all else varies more than that.

    Time in which it computes is not asked: without a core of its own that varies with its lateness.
    """
    in_full = {place.rank: place for place in run.places if len(place.collectives)}
    if late.rank not in in_full or any(rank not in in_full for rank in matched.ranks):
        return False
    places = [in_full[rank] for rank in matched.ranks]
    instead = lateness.excess_ns(places, matched)[late.rank]
    main = max(instead, key=lambda name: instead[name])
    if instead[main] < MOST_OF_IT * max(sum(instead.values()), 1) or main not in _OF_HOST:
        return False

    def by_step(place: Place) -> Ints:
        edges = place.steps.used_bounds
        return place.idle_causes[main].overlap_ns(edges[:-1], edges[1:])

    others = [by_step(place) for place in places if place.rank != late.rank]
    return chance_of(by_step(in_full[late.rank]), others) <= most_chance


def _exposed_waits_ns(
    run: Run, others: Sequence[JobPlace], matched: Skew, at_most_ns: Ints | None = None, *, pushed: bool = False
) -> Sequence[float]:
    """Ns a step that each of the others waits for the last rank and computes nothing; waits at once count once.

    `at_most_ns`: for each collective, only so long before the last rank came. `pushed`: also the time in which it
    computes nothing because it had waited before; of ranks that are late by turns that stays, as the next one is late.
    """

    def of_place(place: JobPlace) -> int:
        waits = matched.waits(matched.number(place.rank), at_most_ns) & place.window
        if not pushed:
            return (waits & place.exposed_communication).total_ns
        rows = place.collectives
        return lateness.pushed_back_ns(
            rows.start_ns, rows.end_ns, waits, place.exposed_communication, LONGEST_LATENCY_NS
        )

    # As shares of their own steps, which may be longer than the mean of all ranks.
    own_step_ns = float(np.mean([place.window_ns / place.units for place in others]))
    return [run.step_ns * of_place(place) / place.units / max(own_step_ns, 1) for place in others]


def _sooner_ns(others: Sequence[JobPlace], which: Callable[[list[int]], float], otherwise: int) -> int:
    """Ns a step by which the others' hosts could be sooner: no more of their waiting is saved.

    `which`: the statistic over ranks; `otherwise`: the value of a rank for which it is not known.
    """
    return int(which([otherwise if (own := sooner_ns(each)) is None else own // each.units for each in others]))


def _share(own_late_ns: Ints, late: int | Ints) -> float:
    """The share of these ranks in all lateness."""
    return float(own_late_ns[late].sum() / max(own_late_ns.sum(), 1))


def _who(
    places: Sequence[JobPlace], matched: Skew, own_late_ns: Ints, clear_share: float
) -> tuple[float, LateNode | None]:
    """The latest rank's share of all lateness, and the machine whose ranks are late instead, if it is one.

    Where all ranks meet in each collective one of them comes last: what the ranks of a machine cause adds up. In groups
    they are late at the same time: a machine is as late as its latest rank, and late as one if others are half as late.
    """
    latest, first = int(own_late_ns.argmax()), first_ranks(places)
    of_node = np.arange(len(places)) if first is None else np.unique(first, return_inverse=True)[1]
    members = np.flatnonzero(of_node == of_node[latest])
    if not matched.has_several_groups:
        share = _share(own_late_ns, latest)
        if share < clear_share:
            by_node = np.bincount(of_node, weights=own_late_ns)
            members = np.flatnonzero(of_node == int(by_node.argmax()))
        late, node_share = members, _share(own_late_ns, members)
        is_node = share < clear_share <= node_share and np.unique(of_node).size > 1
    else:
        apart = lateness.beyond_chance_ns(own_late_ns)
        of_nodes = np.zeros(int(of_node.max()) + 1)
        np.maximum.at(of_nodes, of_node, apart)
        share = node_share = float(apart[latest] / max(of_nodes.sum(), 1))
        late = members[apart[members] >= MOST_OF_IT * apart[latest]]
        is_node = share >= clear_share and of_nodes.size > 1
    if not is_node or members.size < 2 or late.size < 2:
        return share, None
    return share, LateNode(spans([places[member].rank for member in members.tolist()]), node_share)

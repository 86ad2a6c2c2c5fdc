"""What changes in the graphs when more or fewer ranks do the same work each? Their collectives, and who comes last.

Each collective takes as much longer as its transfer does (see `scaling.py`); what ranks that were not recorded made it
wait stays. One rank by itself has no collectives at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.communication.skew import skew
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints
from perfdoctor.replay.edits import shorter
from perfdoctor.replay.graph.graph import WORK, Graph
from perfdoctor.replay.graph.simulate import simulate
from perfdoctor.replay.what_if.scaling import MODELLED, Message, grown, later_ns
from perfdoctor.replay.what_if.spread import steps_ns

#: The largest machine under one operating system has so many GPUs (HGX-2, and clouds' machines alike): a larger job
#: crosses a network, whose speed its collectives then show.
MOST_OF_ONE_MACHINE = 16
#: Collectives of unknown size or kind that take less of the time in collectives do not matter.
_NEGLIGIBLE = 0.01
_ONE = "ranks=1"


class Askable(Struct, frozen=True):
    """The numbers of ranks that can be asked of a recording: `what` in words, and `why_not` others.

    They are 1, if `what` names any, `recorded` and `first` to `last`; more `with_network`, if its bandwidth is given.
    """

    what: str
    why_not: str
    recorded: int = 0
    first: int = 2
    last: int = 1
    with_network: bool = False

    def holds(self, ranks: int, *, network_known: bool = False) -> bool:
        """Can so many ranks be asked? `network_known`: does the question give a network's bandwidth?"""
        more = network_known and self.with_network and ranks > self.recorded
        return more or ranks == self.recorded or (ranks == 1 and bool(self.what)) or self.first <= ranks <= self.last


def recorded_ranks(run: Run) -> int:
    """How many ranks the job had; 0 where that is unknown: one rank was recorded, and it communicates."""
    ranks = max(run.timeline.world_size, len(run.ranks))
    return 0 if ranks == 1 and len(run.timeline.collectives) else ranks


def askable(run: Run) -> Askable:
    """The numbers of ranks about which this recording's collectives can be asked."""
    ranks, one = recorded_ranks(run), f"{_ONE} (no communication)"
    if not len(run.timeline.collectives):
        return Askable("", "it holds no communication, which alone shows how fast links are", ranks)
    if ranks == 0:
        return Askable(one, "it does not record how many ranks there were")
    if why := _unclear(run, ranks):
        return Askable(one, why, ranks)
    if ranks > MOST_OF_ONE_MACHINE:
        first, links = MOST_OF_ONE_MACHINE + 1, "links were not recorded apart from those between"
        why = f"so few would be in one machine, whose {links} the {ranks} ranks"
        return Askable(f"{one}, or ranks={first} and more", why, ranks, first, 1 << 31, True)
    why = (
        f"more than the {ranks} recorded ranks need links, or a network, that were not recorded: give the bandwidth of "
        "each GPU, as in ranks=64@50GB/s"
    )
    what = f"ranks=1 to ranks={ranks}, or more of them over a network (ranks=64@50GB/s)"
    return Askable(what, why, ranks, 1, ranks, True)


def _unclear(run: Run, ranks: int) -> str:
    """Why the collectives that are analysed cannot be modelled among so many ranks, as half a sentence; "" if they can.

    What ran before the first step and after the last one does not count: no step gets longer by it.
    """
    for place in run.job.places:
        frame = place.collectives
        known = frame.text("kind").equals(*MODELLED)
        sized = (frame["bytes"] != UNKNOWN) | frame.text("kind").equals("barrier")
        whole_ns = max(int(frame.duration_ns.sum()), 1)
        if frame.duration_ns[known & ~sized].sum() > _NEGLIGIBLE * whole_ns:
            return "it does not record the sizes of its collectives, as torch.profiler does since PyTorch 2.2"
        if frame.duration_ns[~known].sum() > _NEGLIGIBLE * whole_ns:
            return "it has sends, receives or collectives of kinds whose time among other numbers of ranks is unknown"
        sizes = frame["group_size"][known]
        if ((sizes != UNKNOWN) & (sizes != ranks)).any():
            return "its collectives have several groups, and which of them would grow is not recorded"
    return ""


def with_ranks(
    graphs: Sequence[Graph], run: Run, ranks: int, case: int = 1, network_bytes_per_second: float = 0.0
) -> tuple[tuple[Graph, ...], float]:
    """The graphs among so many ranks, and by how much later the last of them comes, in ns a step.

    `case`: 0 worst, 1 likely, 2 best. `network_bytes_per_second`: the most that links give each rank one way; 0: what
    the recorded ones show.
    """
    before = recorded_ranks(run)
    if ranks == 1:
        return tuple(alone(graph) for graph in graphs), 0.0
    if ranks == before:
        return tuple(graphs), 0.0
    messages, most = list(measured(run)), network_bytes_per_second or math.inf
    # Of each kind and size of message its time among the recorded ranks, and the factors by which that changes.
    factors = {(each.kind, each.size_bytes): (each, grown(each, messages, before, ranks, most)) for each in messages}
    changed = tuple(_longer(graph, factors, case) for graph in graphs)
    return changed, later_ns(own_steps_ns(graphs), before, ranks)[2 - case]


def alone(graph: Graph) -> Graph:
    """The graph without collectives, and without waits for other ranks on the host."""
    place = graph.place
    rows = np.zeros(len(place.work), dtype=bool)
    rows[place.work.rows["collectives"]] = True
    talks = graph.of_work(rows)
    peers = place.host.explicit.get("peer_wait", Intervals.empty()) | place.idle_causes["peer_wait"]
    nothing = np.empty(0, np.int64)
    silent = replace(
        graph,
        duration_ns=np.where(talks, 0, graph.duration_ns),
        extra_ns=np.where(talks, 0, graph.extra_ns),
        collectives=nothing,
        transfer_ns=nothing,
    )
    return shorter.without_host_time(silent, peers, 1.0)


def own_steps_ns(graphs: Sequence[Graph]) -> Ints:
    """Ns of single steps of all ranks where none waits for another; those of a graph count for all it stands for."""
    by_themselves = [alone(graph) for graph in graphs]
    steps = [np.repeat(steps_ns(graph, simulate([graph]).end_ns[0]), graph.stands_for) for graph in by_themselves]
    return np.concatenate(steps)


Grown = Mapping[tuple[str, int], tuple[Message, tuple[float, float, float]]]


def measured(run: Run) -> Iterator[Message]:
    """Transfer time for each kind and size: the median once all ranks had come, else the shortest recorded.

    Of a rank that was recorded without the others, the shortest is the one for which it came last, or nearly so.
    """
    matched = skew(run.job)
    everybody = matched is not None and len(matched.ranks) == recorded_ranks(run)
    found: dict[tuple[str, int], list[int]] = {}
    for place in run.job.places:
        frame = place.recorded_collectives
        took = frame.duration_ns
        if matched is not None and everybody and len(place.collectives):
            own = matched.rows[matched.number(place.rank)]
            frame, took = frame.take(own[own != UNKNOWN]), matched.shortest_ns[own != UNKNOWN]
        for key, ns in zip(_kinds_and_sizes(frame), took.tolist(), strict=True):
            found.setdefault(key, []).append(ns)
    for (kind, size), ns in found.items():
        if kind in MODELLED and (size != UNKNOWN or kind == "barrier") and min(ns) > 0:
            yield Message(kind, max(size, 0), float(np.median(ns) if everybody else min(ns)))


def _kinds_and_sizes(frame: Frame) -> Iterator[tuple[str, int]]:
    return zip(frame.text("kind"), frame["bytes"].tolist(), strict=True)


def _longer(graph: Graph, factors: Grown, case: int) -> Graph:
    """The graph in which collectives get longer or shorter by as much as their transfer does."""
    place = graph.place
    own = [factors.get((kind, max(size, 0))) for kind, size in _kinds_and_sizes(place.recorded_collectives)]
    more, factor = np.zeros(len(place.work)), np.ones(len(place.work))
    rows = place.work.rows["collectives"]
    factor[rows] = [each[1][2 - case] if each else 1.0 for each in own]
    more[rows] = [each[0].transfer_ns if each else 0.0 for each in own]
    at = np.maximum(graph.work_row, 0)
    changes = np.where(graph.kind == WORK, (factor[at] - 1) * np.minimum(more[at], graph.duration_ns), 0)
    transfer = graph.transfer_ns
    if graph.collectives.size:
        transfer = np.rint(transfer * factor[at[graph.collectives]]).astype(np.int64)
    return replace(graph, duration_ns=graph.duration_ns + np.rint(changes).astype(np.int64), transfer_ns=transfer)

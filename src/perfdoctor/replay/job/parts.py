"""Whose work makes the step longer than it need be: which rank's, which stage's?

Two ideals. *Of peers*: each piece of a rank's work takes what the middle one of the ranks with the same work takes,
which shows who is slow. *Balanced*: each piece takes the mean of its kind over all ranks and stages, which shows
whether the split is right. The part of a rank or a stage is what goes away of the excess when its work alone is ideal:

    part = (step - step with only it ideal) / (step - ideal step)

Parts need not sum up to 1: where two are as late as each other, neither helps alone; and where the ideal makes others'
work longer, the part of one may exceed 1 (J. Lin et al., Understanding Stragglers in Large Model Training Using What-if
Analysis, OSDI 2025).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.model.timeline import UNKNOWN, Floats, Ints
from perfdoctor.replay.job.graph import JobGraph

#: So many nodes of all variants together are held at once (64 MB), and replayed at all, which takes some seconds.
_AT_ONCE, _MOST_REPLAYED = 8_000_000, 40_000_000


class Parts(Struct, frozen=True, eq=False):
    """In ns: the step as it is, the ideal one, and for each of `owners` the step in which its work alone is ideal.

    `owners`: the numbers of ranks, or of stages, ascending. `excess_ns`: how much longer than ideal each works in all.
    """

    step_ns: float
    ideal_ns: float
    owners: Ints
    with_it_ns: Floats
    excess_ns: Floats

    @property
    def saved_ns(self) -> Floats:
        """By owner: how much shorter the step gets, in ns; below 0 where it gets longer."""
        return self.step_ns - self.with_it_ns

    @property
    def shares(self) -> Floats:
        """By owner: its part of the excess; 0 where there is none."""
        excess_ns = self.step_ns - self.ideal_ns
        return self.saved_ns / excess_ns if excess_ns > 0 else np.zeros(self.owners.size)


def parts(graph: JobGraph, ideal_ns: Floats, owner: Ints) -> Parts:
    """The parts of all owners. `ideal_ns`: of each node; `owner`: of each node, UNKNOWN where it is nobody's.

    Of very many only those are replayed that work longest beyond the ideal: without it the step depends on none.
    """
    rows = np.flatnonzero(owner != UNKNOWN)
    owners, of_rows = np.unique(owner[rows], return_inverse=True)
    excess_ns = np.bincount(of_rows, weights=(graph.duration_ns - ideal_ns)[rows]).astype(np.float64)
    whole = graph.step_ns(np.stack([graph.duration_ns, ideal_ns], axis=1))
    with_it_ns = np.full(owners.size, whole[0])
    chosen = np.argsort(-excess_ns, kind="stable")[: max(_MOST_REPLAYED // len(graph), 1)]
    at_once = max(_AT_ONCE // len(graph), 1)
    for first in range(0, chosen.size, at_once):
        some = chosen[first : first + at_once]
        variants = np.where(owner[:, None] == owners[some], ideal_ns[:, None], graph.duration_ns[:, None])
        with_it_ns[some] = graph.step_ns(variants)
    return Parts(float(whole[0]), float(whole[1]), owners, with_it_ns, excess_ns)


def balanced_ns(graph: JobGraph) -> Floats:
    """Durations in which own work takes the mean of its kind, and a transfer the middle one of its kind."""
    known = graph.kind != UNKNOWN
    ideal_ns = _middle_ns(graph.duration_ns, np.where(known & graph.is_transfer, graph.kind, UNKNOWN))
    own = np.flatnonzero(known & ~graph.is_transfer)
    _, kind, count = np.unique(graph.kind[own], return_inverse=True, return_counts=True)
    ideal_ns[own] = (np.bincount(kind, weights=graph.duration_ns[own]) / count)[kind]
    return ideal_ns


def of_peers_ns(graph: JobGraph) -> Floats:
    """Durations in which a rank's own work takes what the middle one of its peers takes for it; of two, the faster one.

    The same work may be cut into more pieces on one rank than on the other: all of them get longer or shorter alike.
    """
    rows = np.flatnonzero(graph.peers != UNKNOWN)
    peers, rank = graph.peers[rows], graph.rank[rows]
    ranks = int(rank.max(initial=0)) + 1
    work, of_work = np.unique(peers * ranks + rank, return_inverse=True)
    took_ns = np.bincount(of_work, weights=graph.duration_ns[rows]).astype(np.float64)
    factor = _middle_ns(took_ns, work // ranks, of_two=0.0) / np.where(took_ns > 0, took_ns, np.inf)
    ideal_ns: Floats = graph.duration_ns.copy()
    ideal_ns[rows] *= np.where(took_ns > 0, factor, 1.0)[of_work]
    return ideal_ns


def even_stages_ns(graph: JobGraph) -> Floats:
    """Durations in which each stage has as much own work as the mean one; its ranks stay as uneven as they are."""
    own = np.flatnonzero((graph.kind != UNKNOWN) & ~graph.is_transfer)
    stage = graph.stage[own]
    ranks = np.unique(np.stack((stage, graph.rank[own])), axis=1)[0]
    took_ns = np.bincount(stage, weights=graph.duration_ns[own]) / np.bincount(ranks)
    ideal_ns: Floats = graph.duration_ns.copy()
    ideal_ns[own] *= (took_ns.mean() / np.maximum(took_ns, 1.0))[stage]
    return ideal_ns


def even_loads_ns(graph: JobGraph, kind: int) -> Floats:
    """Durations in which a rank's own work of one kind takes what its peers' takes on the mean: none of it is gone."""
    rows = np.flatnonzero((graph.peers != UNKNOWN) & (graph.kind == kind))
    ideal_ns: Floats = graph.duration_ns.copy()
    if not rows.size:
        return ideal_ns
    of_all, of_rank = graph.peers[rows], graph.peers[rows] * (int(graph.rank.max()) + 1) + graph.rank[rows]
    works, of_work = np.unique(of_rank, return_inverse=True)
    took_ns = np.bincount(of_work, weights=ideal_ns[rows])
    ranks = np.bincount(works // (int(graph.rank.max()) + 1))
    mean_ns = np.bincount(of_all, weights=ideal_ns[rows])[of_all] / ranks[of_all]
    ideal_ns[rows] *= mean_ns / np.maximum(took_ns[of_work], 1.0)
    return ideal_ns


def _middle_ns(duration_ns: Floats, group: Ints, of_two: float = 0.5) -> Floats:
    """Each duration replaced by the median of its group, those of UNKNOWN as they are.

    `of_two`: how far the one taken of two lies from the shorter towards the longer.
    """
    rows = np.flatnonzero(group != UNKNOWN)
    rows = rows[np.lexsort((duration_ns[rows], group[rows]))]
    middle_ns: Floats = duration_ns.copy()
    if not rows.size:
        return middle_ns
    _, first, of_group, count = np.unique(group[rows], return_index=True, return_inverse=True, return_counts=True)
    ordered = duration_ns[rows]
    lower, upper = ordered[first + (count - 1) // 2], ordered[first + count // 2]
    weight: Floats = np.where(count == 2, of_two, 0.5)
    middle_ns[rows] = (lower + weight * (upper - lower))[of_group]
    return middle_ns

"""Who is late, and which stages have more to do than others, where lateness goes from rank to rank?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.communication.nodes import first_ranks
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.replay.job.of_run import EXCHANGED, communicating, job_graph, meetings
from perfdoctor.replay.job.parts import Parts, even_loads_ns, even_stages_ns, of_peers_ns, parts


@once_per_run
def late_ranks(run: Run) -> Parts | None:
    """The parts of ranks that take longer than their peers for the same work; None where that cannot be replayed.

    `owners` are numbers of the job's places that communicate.
    """
    graph = job_graph(run)
    return parts(graph, of_peers_ns(graph), graph.rank) if graph is not None else None


@once_per_run
def late_nodes(run: Run) -> Parts | None:
    """The same of machines, whose ranks come in time together; `owners` are their first ranks. None where unknown."""
    graph, first = job_graph(run), first_ranks(communicating(run))
    if graph is None or first is None:
        return None
    return parts(graph, of_peers_ns(graph), np.where(graph.rank != UNKNOWN, first[graph.rank], UNKNOWN))


def faster_transfers_ns(run: Run, kind: str, members: tuple[int, ...], share: float) -> float | None:
    """How much shorter the step gets where these ranks' transfers of a kind take this share of their time, in ns.

    None where that cannot be replayed.
    """
    graph, matched = job_graph(run), meetings(run)
    if graph is None or matched is None:
        return None
    ranks = np.array(matched.ranks)
    theirs = np.array([each == kind for each in matched.kinds])
    theirs[theirs] = [
        tuple(ranks[matched.members_of(at)].tolist()) == members for at in np.flatnonzero(theirs).tolist()
    ]
    faster_ns = graph.duration_ns.copy()
    faster_ns[len(graph) - theirs.size :][theirs] *= share
    before_ns, after_ns = graph.step_ns(np.stack([graph.duration_ns, faster_ns], axis=1))
    return float(before_ns - after_ns)


def even_exchange_ns(run: Run, share: float) -> float | None:
    """How much shorter the step gets where all-to-alls bring each rank as much, and it computes as much of that, in ns.

    `share`: of their time that even transfers take. None where that cannot be replayed.
    """
    graph, matched = job_graph(run), meetings(run)
    if graph is None or matched is None:
        return None
    even_ns = even_loads_ns(graph, EXCHANGED)
    even_ns[len(graph) - len(matched.kinds) :][np.array(matched.kinds) == "all_to_all"] *= share
    before_ns, after_ns = graph.step_ns(np.stack([graph.duration_ns, even_ns], axis=1))
    return float(before_ns - after_ns)


@once_per_run
def uneven_stages(run: Run) -> Parts | None:
    """The parts of a pipeline's stages, by their numbers, in what even ones would save; None where there are none."""
    graph = job_graph(run)
    if graph is None or graph.stage.max() < 1:
        return None
    return parts(graph, even_stages_ns(graph), graph.stage)

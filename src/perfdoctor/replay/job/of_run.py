"""The graph of all ranks of a recorded job: the line of each, joined at the meetings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.metrics.communication.messages import pipelines
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Ints
from perfdoctor.replay.job.graph import JobGraph
from perfdoctor.replay.job.lines import Line, between, line_of

#: The kinds of own work: any, and what is computed between two all-to-alls, of what they brought. Waits for
#: communication of which the other side is not known are of none, and stay.
OWN, EXCHANGED = 0, 1
#: A graph whose unchanged step is further from the recorded one, as a share of it, does not model it; nor does one in
#: which ranks wait for a larger share of their time for others that are not known: a fix would shorten that, too.
_LARGEST_ERROR = 0.05
#: So many arrivals make two million nodes, which take a second to replay.
_MOST_ARRIVALS = 400_000


def communicating(run: Run) -> list[JobPlace]:
    """The places of the job that communicate: the ranks of its graph, in their order."""
    return [place for place in run.job.places if len(place.collectives)]


def meetings(run: Run) -> Skew | None:
    """The meetings of the graph: its last nodes are their transfers, in this order."""
    return skew(run.job, with_uneven=True, with_messages=True)


@once_per_run
def job_graph(run: Run) -> JobGraph | None:
    """The graph of a run in which ranks meet; None where they do not, or it is not true to the recorded steps."""
    matched = meetings(run)
    if matched is None or not run.per_step or matched.came.row.size > _MOST_ARRIVALS:
        return None
    places = communicating(run)
    lines = [line_of(place, matched, number) for number, place in enumerate(places)]
    unknown_ns = sum(float(line.unknown_ns.sum()) for line in lines)
    if unknown_ns > _LARGEST_ERROR * sum(place.window_ns for place in places):
        return None
    graph = _joined(places, matched, lines)
    try:
        step_ns = float(graph.step_ns(graph.duration_ns[:, None])[0])
    except ValueError:
        return None
    recorded_ns = [np.diff(_measured(place.steps.used_bounds))[0] for place in places]
    return graph if abs(step_ns * graph.steps / sum(recorded_ns) - 1) <= _LARGEST_ERROR else None


def _measured(edges: Ints) -> Ints:
    """Of the edges of steps, or of what lies at them, those between which steps are measured.

    The stages of a pipeline begin a step one after the other; in the replay all begin at once, and the first step of
    several shows that.
    """
    return edges[[1, -1]] if edges.size > 2 else edges[[0, -1]]


def _joined(places: Sequence[JobPlace], matched: Skew, lines: Sequence[Line]) -> JobGraph:
    """The lines and their meetings: two nodes a piece (own work, unknown wait), two a meeting (begin, transfer)."""
    count = np.array([line.own_ns.size for line in lines])
    own = np.split(np.arange(int(count.sum())) * 2, np.cumsum(count)[:-1])
    count_met = len(matched.kinds)
    begins = 2 * int(count.sum()) + np.arange(count_met)
    over = begins + count_met
    edges = [np.stack((over, begins), axis=1)]
    for line, node in zip(lines, own, strict=True):
        piece, meeting = line.behind.T
        edges += [
            np.stack((node + 1, node), axis=1),
            np.stack((node[1:], node[:-1] + 1), axis=1),
            np.stack((begins[line.comes_to[line.asks]], node[line.asks] + 1), axis=1),
            np.stack((node[piece], over[meeting]), axis=1),
            np.stack((begins[line.queued[:, 1]], over[line.queued[:, 0]]), axis=1),
        ]
    after, before = np.concatenate(edges).T
    measured = np.stack(
        [_measured(np.append(UNKNOWN, node[line.edges] + 1)) for line, node in zip(lines, own, strict=True)]
    )
    pieces = np.concatenate([np.stack((line.own_ns, line.unknown_ns), axis=1).ravel() for line in lines])
    nobody = np.full(2 * count_met, UNKNOWN)
    of_rank = np.repeat(np.arange(len(places)), 2 * count)
    exchanges = np.array(matched.kinds) == "all_to_all"
    of_piece = np.concatenate([np.where(between(line, exchanges), EXCHANGED, OWN) for line in lines])
    kind = np.stack((of_piece, np.full(of_piece.size, UNKNOWN)), axis=1).ravel()
    return JobGraph(
        duration_ns=np.concatenate((pieces, np.zeros(count_met), matched.shortest_ns.astype(np.float64))),
        kind=np.append(kind, nobody),
        is_transfer=np.zeros(pieces.size + 2 * count_met, dtype=bool),
        rank=np.append(of_rank, nobody),
        stage=np.append(pipelines(places)[of_rank], nobody),
        peers=np.append(np.where(kind != UNKNOWN, _peers(places, matched, lines), UNKNOWN), nobody),
        after=after,
        before=before,
        first=measured[:, 0],
        last=measured[:, 1],
        steps=sum(max(line.edges.size - 1, 1) for line in lines),
    )


def _peers(places: Sequence[JobPlace], matched: Skew, lines: Sequence[Line]) -> Ints:
    """For both nodes of each piece a number that the same stretch has on all ranks that do the same.

    Ranks do the same if they come to meetings of the same kinds in the same order; those of one stage that do not are
    compared over all their window.
    """
    kinds = np.unique(np.array(matched.kinds), return_inverse=True)[1]
    stages = pipelines(places).tolist()
    orders = [tuple(kinds[line.comes_to[line.comes_to != UNKNOWN]].tolist()) for line in lines]
    alike = {
        stage: len({order for order, own in zip(orders, stages, strict=True) if own == stage}) == 1
        for stage in set(stages)
    }
    longest = 1 + max(int(line.segment.max()) for line in lines)
    numbers = [
        stage * longest + (line.segment if alike[stage] else 0 * line.segment)
        for line, stage in zip(lines, stages, strict=True)
    ]
    return np.repeat(np.concatenate(numbers), 2)

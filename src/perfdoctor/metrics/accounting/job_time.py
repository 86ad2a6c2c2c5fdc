"""Where did the time of a large job go, on the mean of all ranks and of those of each node?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.accounting.split import split
from perfdoctor.metrics.communication.nodes import first_ranks
from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.run import Run
from perfdoctor.records.time_split import JobTime, MeanTime, TimeSplit


def _parts(units: int, of: TimeSplit) -> list[float]:
    whole = (of.window_ns, of.compute_ns, of.exposed_communication_ns, of.exposed_copy_ns, of.idle_ns)
    return [part / units for part in whole]


def _mean(parts: Floats, ranks: Ints) -> MeanTime:
    return MeanTime(int(ranks.min()), int(np.unique(ranks).size), *np.rint(parts.mean(axis=0)).astype(int).tolist())


def job_time(run: Run) -> JobTime | None:
    """None where every rank was read in full: then each has its own split."""
    if run.summaries is None:
        return None
    places = run.job.places
    parts = np.array([_parts(place.units, split(place)) for place in places])
    ranks = np.array([place.rank for place in places])
    first = first_ranks(places)
    nodes = [] if first is None else [np.flatnonzero(first == node) for node in np.unique(first).tolist()]
    return JobTime(_mean(parts, ranks), tuple(_mean(parts[own], ranks[own]) for own in nodes))

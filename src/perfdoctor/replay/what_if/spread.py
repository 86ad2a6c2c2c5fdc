"""How far may a step that is measured later be from the predicted one, though the prediction is right?

As far as single steps of the replay are from their mean, and as far as two runs of one training are from each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.model.timeline import Floats, Ints
from perfdoctor.replay.graph.graph import WORK, Graph
from perfdoctor.replay.graph.simulate import Simulation

#: Of fewer steps quantiles are single steps.
_FEWEST_STEPS = 5
#: GPUs of one kind differ by 8 % on average, 4 % to either side (P. Sinha, Not All GPUs Are Created Equal, 2022).
#: Recorded steps of three trainings were 2 % shorter to 3 % longer than what their authors measured another day. Both
#: together are 5 %.
OTHER_RUN = 0.05


def range_of_later(graphs: Sequence[Graph], simulation: Simulation) -> tuple[float, float]:
    """The shortest and the longest step that a later run is expected to have, as factors of the simulated one."""
    shorter, longer = spread(graphs, simulation)
    return shorter * (1 - OTHER_RUN), longer * (1 + OTHER_RUN)


def spread(graphs: Sequence[Graph], simulation: Simulation) -> tuple[float, float]:
    """The 10th and 90th percentile of steps over their mean, as factors: at most 1, and at least 1.

    Over all ranks together, each step from the end of the one before to its own. (1, 1) where there are too few.
    """
    steps = np.concatenate([steps_ns(graph, ends) for graph, ends in zip(graphs, simulation.end_ns, strict=True)])
    if steps.size < _FEWEST_STEPS or not steps.mean() > 0:
        return 1.0, 1.0
    low, high = np.quantile(steps, (0.1, 0.9)) / steps.mean()
    return min(float(low), 1.0), max(float(high), 1.0)


def steps_ns(graph: Graph, ends: Floats) -> Ints:
    """Ns of each step of the period that has one before it. `ends`: of the nodes, in ns."""
    works = np.flatnonzero(graph.kind == WORK)
    edges = graph.place.steps.even_bounds
    step = np.searchsorted(edges, graph.place.work.start_ns[graph.work_row[works]], side="right")
    # Work of another stream may begin a little outside of the steps that are used: that is no step by itself.
    step = np.clip(step, 1, edges.size - 1)
    order = np.argsort(step, kind="stable")
    first = np.flatnonzero(np.diff(step[order], prepend=-1))
    over = np.maximum.accumulate(np.maximum.reduceat(ends[works][order], first))
    return np.diff(over).astype(np.int64)

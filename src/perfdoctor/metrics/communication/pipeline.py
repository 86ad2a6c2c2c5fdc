"""In which order do the stages of a pipeline work, on how many micro-batches, and what bubble does that leave?

A stage sends one message forward and one back for each micro-batch and chunk of the model that it holds. Where it holds
several, the last stage sends forward to the first one as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.messages import is_ring, joined, messages
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Ints

#: Of two stages the messages look alike whether each holds one chunk or several.
_FEWEST_STAGES = 3


class Schedule(Struct, frozen=True):
    """`micro_batches` of a step; `chunks` of the model on each of the `stages`; `name`: of the order, "" if unknown."""

    stages: int
    micro_batches: int
    chunks: int
    name: str

    @property
    def bubble_share(self) -> float:
        """What of the pipeline's time each of even stages has nothing to do: (p - 1) of v m + p - 1 turns.

        D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC 2021,
        section 2.2.
        """
        turns = self.chunks * self.micro_batches
        return (self.stages - 1) / (turns + self.stages - 1)


@once_per_run
def schedule(run: Run) -> Schedule | None:
    """The schedule of the run's pipelines; None where their messages do not show it, or they differ."""
    places = [place for place in run.job.places if len(place.collectives)]
    found = {
        _of_pipeline(places, own.tolist(), messages(places)) for own, pairs in joined(places) if not is_ring(pairs)
    }
    return found.pop() if len(found) == 1 else None


def _of_pipeline(
    places: Sequence[JobPlace], own: Sequence[int], met: Mapping[tuple[int, int], tuple[Ints, Ints]]
) -> Schedule | None:
    """The schedule of the pipeline of these places, by stage."""
    first, second, last = own[0], own[1], own[-1]
    has_steps = places[first].steps.used_bounds.size > 1
    if len(own) < _FEWEST_STAGES or not has_steps or not {(first, second), (second, first)} <= met.keys():
        return None
    place = places[first]
    forward = _a_step(place, met[first, second][0])
    round_ = _a_step(place, met[last, first][1]) if (last, first) in met else 0
    batches = forward - round_
    if batches < 1 or forward % batches:
        return None
    chunks = forward // batches
    name = (
        "interleaved" if chunks > 1 else _name(place, len(own), batches, met[first, second][0], met[second, first][1])
    )
    return Schedule(len(own), batches, chunks, name)


def _a_step(place: JobPlace, rows: Ints) -> int:
    """How many of these rows of `recorded_collectives` most steps have: of the first some were sent unrecorded."""
    counts, _ = np.histogram(place.recorded_collectives.start_ns[rows], place.steps.used_bounds)
    return int(np.sort(counts)[counts.size // 2])


def _name(place: JobPlace, stages: int, batches: int, sent: Ints, received: Ints) -> str:
    """The name of the first stage's order: how many micro-batches does it send before it receives a gradient?"""
    start, begin = place.recorded_collectives.start_ns, place.steps.used_bounds[0]
    back = start[received]
    back = back[back >= begin]
    if batches <= stages or not back.size:
        return ""
    before = int(np.count_nonzero((start[sent] >= begin) & (start[sent] <= back.min())))
    return "all forward, then all backward (GPipe)" if before >= batches else "one forward, one backward (1F1B)"

"""On how many items did a step train: the targets of its loss?

A classification's loss takes one target an item: a token of a language model, a sample of a classifier. It shows the
batch where each step computes it exactly once; several (micro-batches, or several heads) cannot be separated.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np

from perfdoctor.model.host_rows import named, outermost
from perfdoctor.model.launches import first_kernels
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.vocabulary.names import torch as torch_names


def targets_per_step(place: Place) -> float | None:
    """Targets of the loss in a step, the mean of all; None where that is not recorded, or ambiguous."""
    if not place.steps.used or place.asked is not None:  # an execution of a range is no step
        return None
    if place.device is None:
        losses = outermost(place.timeline.ops.of(rank=place.rank).named(torch_names.CLASSIFICATION_LOSS))
        at = losses.start_ns
    else:
        _, losses, at = first_kernels(place, named(place.timeline, "ops", torch_names.CLASSIFICATION_LOSS))
    bounds = place.steps.used_bounds
    inside = (at >= bounds[0]) & (at < bounds[-1])
    of_step = np.bincount(np.searchsorted(bounds, at[inside], side="right") - 1, minlength=place.steps.used)
    if not (of_step == 1).all():
        return None
    shapes = losses.text("input_shapes")
    counts = [targets(shapes[row]) for row in np.flatnonzero(inside).tolist()]
    return float(np.mean(counts)) if all(counts) else None


def items_per_step(run: Run) -> float | None:
    """What one rank trains on in a step: targets of its loss, or what the user said; None if unknown."""
    given = run.timeline.user_values.tokens_per_step
    found = [items for place in run.places if (items := targets_per_step(place))]
    return given or (float(np.mean(found)) if found and len(found) == len(run.places) else None)


@lru_cache(maxsize=65536)
def targets(shapes: str) -> int:
    """Targets of a loss by the shapes of its inputs, ((items, classes), (items), …); 0 where they are not recorded."""
    try:
        first, second = json.loads(shapes)[:2]
        return int(second[0]) if len(first) == 2 and len(second) == 1 and first[0] == second[0] else 0
    except (ValueError, TypeError, IndexError):
        return 0

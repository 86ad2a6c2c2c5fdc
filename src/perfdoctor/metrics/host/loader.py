"""Which loader feeds the training, and is it the limit?

A thread that pins batches is no loader of its own here, for nothing shows it at work: Nsight Systems knows its name
(`pt_data_pin`) and has no event of it, since it copies from memory to memory without a call, and torch.profiler records
no operators of threads that it was not started in.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.vocabulary.names import loaders as loader_names

_LOADERS = (("single-process", loader_names.SINGLE_PROCESS), ("workers", loader_names.WORKERS))
#: Less than this is no wait worth the name: it disappears in the noise between two runs.
_WAIT_SHARE = 0.03
#: A loader that made the training wait only in the first two thirds of the steps was starting, and keeps up now.
_STARTED_SHARE = 2 / 3


def loader(run: Run) -> str:
    """The loader: single-process, workers, other (the wait is marked, its loader unknown) or unmarked (inferred)."""
    for name, pattern in _LOADERS:
        for signal in ("ranges", "ops", "functions"):
            if run.timeline[signal].name.matches(pattern).any():
                return name
    marked = any((place.host.explicit["input_wait"] & place.idle_causes["input_wait"]) for place in run.places)
    return "other" if marked else "unmarked"


def unhidden_share(run: Run) -> float:
    """In which share of the steps would faster work on the device shorten the step, and not only lengthen the wait?

    A loader that runs beside the training delivers at its own pace: time won before a wait is waited at that wait. Only
    steps after the last wait gain. With a loader in the training's own process, or none that is waited for, all do.
    """
    if not run.per_step or loader(run) == "single-process":
        return 1.0
    if run.job.share(lambda place: place.idle_ns("input_wait")) < _WAIT_SHARE:
        return 1.0
    return run.average([_after_last_wait(place) for place in run.places])


def _after_last_wait(place: Place) -> float:
    """The share of the steps behind the last one that waited; 1 where only steps at the beginning did."""
    bounds = place.steps.used_bounds
    waits = place.idle_causes["input_wait"].overlap_ns(bounds[:-1], bounds[1:])
    waited = np.flatnonzero(waits > _WAIT_SHARE * place.window_ns / place.units)
    if not waited.size or waited[-1] < _STARTED_SHARE * (waits.size - 1):
        return 1.0
    return float(waits.size - 1 - waited[-1]) / waits.size

"""How is this training fed, and with what: the wait, the batch, the cores, and what workers would make of it?"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from msgspec.structs import replace

from perfdoctor.hardware.worker_batch import TYPICAL, WorkerBatch, of_machine
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.host import cpu_use
from perfdoctor.metrics.host.loader_workers import Batch, Cores, Feeding, Prospect, with_workers
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats
from perfdoctor.system.run_folder import ReportedLoader

#: Where the training thread had to wait for a core for longer than noise, torch's other threads had to as well, and it
#: slept until they were done: then not all of its sleep was for files and networks.
_CORES_WERE_SHORT = 0.05


def prospect(run: Run, wait_ns: float, workers: int) -> Prospect:
    """The step with (more) workers. `wait_ns`: of a step; `workers`: that there are, 0 where the training has none."""
    feeding = Feeding(run.step_ns, wait_ns, workers, _io_share(run, wait_ns), pins=not host_places(run))
    return with_workers(feeding, batch(run), cost(run), cores(run))


def receive_ns(run: Run) -> float:
    """What it takes the training process to receive a batch that a worker has ready."""
    return prospect(run, 0.0, 0).receive_ns


def cost(run: Run) -> WorkerBatch:
    """What a batch from a worker costs on the recorded machine; `TYPICAL` where it was not measured there."""
    found = (of_machine(rates) for rates in run.timeline.measured)
    return next((each for each in found if each.is_measured), TYPICAL)


def reported_loader(run: Run) -> ReportedLoader | None:
    """The loader that gave most of the batches; None where none was reported."""
    return max(run.timeline.loaders, key=lambda each: each.batches, default=None)


def batch(run: Run) -> Batch:
    """What the largest batch of the reported loader holds."""
    found = reported_loader(run)
    return Batch(found.tensors, found.bytes) if found else Batch()


def cores(run: Run) -> Cores:
    """The cores of one training process: its share of what all may use together, unless it is bound to fewer."""
    # Ranks of several machines drive devices of the same numbers; without a GPU all are taken for one machine's.
    devices = Counter(place.device for place in run.places if place.device is not None)
    sharing = max(math.ceil(len(run.timeline.ranks) / max(devices.values(), default=1)), 1)
    threads = cpu_use.torch_threads(run) if host_places(run) else 1.0
    of_all = _least(run.timeline["cpu_samples"].floats("allowed_cores"))
    bound = _least(run.job.timeline["cpu_processes"].floats("allowed_cores"))
    count = bound / sharing if math.isnan(of_all) else float(np.fmin(bound, of_all / sharing))
    known = Cores(count, cpu_use.idle_cores(run) / sharing, cpu_use.cores_used(run))
    return replace(known, computing=known.count if math.isnan(threads) else threads)


def _least(values: Floats) -> float:
    return float(np.nanmin(values)) if not np.isnan(values).all() else math.nan


def _io_share(run: Run, wait_ns: float) -> float:
    """The share of its waits in which the training thread used no core: it neither ran nor waited for one (0-1)."""
    if cpu_use.waiting_share(run) > _CORES_WERE_SHORT:
        return 0.0
    sleeping = cpu_use.sleeping_share(run)
    if np.isnan(sleeping) or not host_places(run):
        return 0.0  # on a GPU the thread also waits for the device
    return float(np.clip(sleeping * run.step_ns / max(wait_ns, 1.0), 0, 1))

"""Which loader feeds the training, is it the limit, and what would workers make of it?

A thread that pins batches is no loader of its own here, for nothing shows it at work: Nsight Systems knows its name
(`pt_data_pin`) and has no event of it, since it copies from memory to memory without a call, and torch.profiler records
no operators of threads that it was not started in.
"""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
from msgspec.structs import replace

from perfdoctor.hardware.worker_batch import TYPICAL, WorkerBatch, of_machine
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.grouping import of_known
from perfdoctor.metrics.host import cpu_use
from perfdoctor.metrics.host.loader_workers import Cores, Feeding, Prospect, Supply, with_workers
from perfdoctor.metrics.host.same_work import MOST_OF_IT
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.system.run_folder import LoaderTrial, ReportedLoader, TriedWorkers
from perfdoctor.vocabulary.names import loaders as loader_names

_LOADERS = {"single-process": loader_names.SINGLE_PROCESS, "workers": loader_names.WORKERS}
_SHOWN_IN = ("ranges", "ops", "functions")
#: Less than this is no wait worth the name: it disappears in the noise between two runs.
_WAIT_SHARE = 0.03
#: A loader that made the training wait only in the first two thirds of the steps was starting, and keeps up now.
_STARTED_SHARE = 2 / 3


def loader(run: Run) -> str:
    """The loader: single-process, workers, other (the wait is marked, its loader unknown) or unmarked (inferred).

    Of both kinds, as where validation needs no workers, that which gave most batches, else that which is waited for.
    """
    seen = [
        name
        for name, pattern in _LOADERS.items()
        if any(run.timeline[signal].name.matches(pattern).any() for signal in _SHOWN_IN)
    ]
    if len(seen) > 1 and (known := reported_loader(run)):
        return "workers" if known.workers else "single-process"
    if len(seen) > 1:
        return max(seen, key=lambda name: run.mean(lambda place: _waited_ns(place, _LOADERS[name])))
    if seen:
        return seen[0]
    marked = any((place.host.explicit["input_wait"] & place.idle_causes["input_wait"]) for place in run.places)
    return "other" if marked else "unmarked"


def _waited_ns(place: Place, pattern: re.Pattern[str]) -> int:
    """How long a loader of this name is waited for."""
    calls = [place.timeline[signal].of(rank=place.rank).named(pattern).intervals for signal in _SHOWN_IN]
    return (Intervals.union(calls) & place.idle_causes["input_wait"]).total_ns


def unhidden_share(run: Run) -> float:
    """The share of the steps that faster work on the device would shorten, and not only lengthen their wait (0-1).

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


#: Of the cores that workers could use; torch's own thread and the queue between them wait for each other meanwhile.
_GOT_ALL = 0.9
#: Tensors of a batch of unknown contents: what it is trained on, and its targets.
_USUAL_TENSORS = 2
#: What a batch of other contents costs, or on another machine: so many times as much as was measured elsewhere. To
#: receive a tensor took 0.05 to 0.5 ms, from a worker that rests or computes in Python meanwhile.
_DOUBT_OF_TYPICAL, _DOUBT_OF_MACHINE, _DOUBT_OF_TRIAL = 3.0, 2.0, 1.25


#: A thread that waits for a core for longer than this is not stretched in proportion: it gets a turn now and then.
_MOST_DELAYED = 0.9


def prospect(run: Run, wait_ns: float, workers: int) -> Prospect:
    """The step with (more) workers. `wait_ns`: of a step; `workers`: that there are, 0 where the training has none."""
    tried = trial(run)
    computed = tried.make_cpu_ns / tried.make_ns if tried else 1 - _io_share(run, wait_ns)
    computed_ns = 0.0 if workers else min(computed, 1.0) * wait_ns
    known, batches = reported_loader(run), batches_per_step(run)
    epoch = known.epoch if known else 0
    feeding = Feeding(run.step_ns / batches, wait_ns / batches, workers, computed_ns / batches, epoch)
    return with_workers(feeding, _supply(run, feeding), _as_tried(cores(run), tried)).of_step(batches)


def _as_tried(known: Cores, tried: LoaderTrial | None) -> Cores:
    """No more cores than several workers got that could have used more."""
    most = max(tried.taken, key=lambda each: each.workers, default=None) if tried else None
    if tried is None or most is None or most.workers < 2:  # a single one leaves cores to others
        return known
    wanted, got = most.workers * tried.make_cpu_ns / tried.make_ns, (most.cpu_ns + most.own_cpu_ns) / most.batch_ns
    lacked = wanted > 1 and got < _GOT_ALL * min(wanted, known.count)
    return replace(known, count=min(known.count, max(got, 1.0))) if lacked else known


@once_per_run
def trial(run: Run) -> LoaderTrial | None:
    """What was tried with the loader in a copy of the program, as long as it takes beside what else ran while steps
    were recorded; None where nothing was.

    Other programs come and go: where they ran in the trial alone, or in a part of it, workers seem slower than the
    training that makes its batches itself, and where they ran before it alone, too fast.
    """
    tried = next(iter(run.timeline.loader_trials), None)
    if tried is None:
        return None
    alone = _without_others(tried, cores(run).count)
    beside_others = _beside_others(run, alone.make_ns)
    return replace(
        alone,
        make_ns=round(beside_others * alone.make_ns),
        slowest_ns=round(beside_others * alone.slowest_ns),
        taken=tuple(replace(each, batch_ns=round(beside_others * each.batch_ns)) for each in alone.taken),
    )


def _beside_others(run: Run, make_ns: int) -> float:
    """By how much others in the steps made a batch longer that takes `make_ns` alone.

    Of the mean over all recorded steps only as much as is seen: the training that makes batches itself, and does
    nothing meanwhile, waits for one no longer than it takes to make it.
    """
    stretched = 1 / (1 - min(cpu_use.contended_share(run), _MOST_DELAYED))
    known = reported_loader(run)
    if known is None or known.workers or not host_places(run):
        return stretched
    return min(stretched, max(_wait_ns(run) / batches_per_step(run) / make_ns, 1.0))


def _without_others(tried: LoaderTrial, count: float) -> LoaderTrial:
    """The trial as if no other program had run beside it, on `count` cores; as it is where that is not known."""
    if math.isnan(count):
        return tried
    made_ns = _alone_ns(tried.make_ns, tried.make_cpu_ns, tried.make_delay_ns, 1, count)
    return replace(
        tried,
        make_ns=made_ns,
        slowest_ns=round(tried.slowest_ns * made_ns / tried.make_ns),
        taken=tuple(replace(each, batch_ns=_taken_alone_ns(each, count)) for each in tried.taken),
    )


def _taken_alone_ns(tried: TriedWorkers, count: float) -> int:
    left = count - tried.own_cpu_ns / tried.batch_ns
    return _alone_ns(tried.batch_ns, tried.cpu_ns, tried.delay_ns, tried.workers, left)


def _alone_ns(wall_ns: int, ran_ns: int, waited_ns: int, threads: int, count: float) -> int:
    """How long it had taken if others had left `count` cores to these threads, which `ran_ns` and waited for a core for
    `waited_ns`, together.

    What waited would have run, on as many cores as there are; the rest of the waiting was for each other. Where they
    wanted all cores, so much more is done there; else each thread ends that much sooner, and sleeps as long as before.
    """
    lost_ns = min(waited_ns, count * wall_ns - ran_ns)
    if lost_ns <= 0:
        return wall_ns
    sharing = count if ran_ns + waited_ns > count * wall_ns else threads
    return max(round(wall_ns - lost_ns / sharing), ran_ns // threads)


def _supply(run: Run, feeding: Feeding) -> Supply:
    """What a batch from a worker costs: as it was tried, else by its contents and what the recording shows."""
    tried, typical, batch = trial(run), cost(run), _contents(run)
    send_ns, pins = typical.send.ns(*batch), not host_places(run)
    receive_ns = typical.receive_ns(*batch, pinned=pins)
    doubt = _DOUBT_OF_MACHINE if typical.is_measured else _DOUBT_OF_TYPICAL
    if tried and tried.receive_ns:
        # A thread that pins batches receives them beside the training, and takes Python's lock from it at most.
        doubt = _DOUBT_OF_TRIAL if not pins else max(tried.receive_ns / receive_ns, 1.0)
        receive_ns = receive_ns if pins else tried.receive_ns
    if feeding.workers:  # they send as well
        work_ns = float(feeding.workers * feeding.step_ns)
        taken_ns = cores(run).taken * feeding.step_ns
        cpu_ns = tried.make_cpu_ns if tried else min(taken_ns, work_ns) if cores(run).is_known else work_ns
        return Supply(work_ns, cpu_ns, receive_ns, doubt * receive_ns, is_tried=tried is not None)
    if tried is None:
        work_ns, cpu_ns = feeding.wait_ns + send_ns, feeding.fetch_cpu_ns + send_ns
        return Supply(work_ns, cpu_ns, receive_ns, doubt * receive_ns)
    work_ns, cpu_ns = tried.make_ns + send_ns, tried.make_cpu_ns + send_ns
    if tried.taken:
        work_ns, cpu_ns = float(tried.taken[0].batch_ns), float(tried.taken[0].cpu_ns)
    paces = {each.workers: float(each.batch_ns) for each in tried.taken}
    return Supply(work_ns, cpu_ns, receive_ns, doubt * receive_ns, tried.slowest_ns, paces, is_tried=True)


def receive_ns(run: Run) -> float:
    """What it takes the training process to receive the batches of a step that workers have ready."""
    return prospect(run, 0.0, 0).receive_ns


def cost(run: Run) -> WorkerBatch:
    """What a batch from a worker costs on the recorded machine; `TYPICAL` where it was not measured there."""
    found = (of_machine(rates) for rates in run.timeline.measured)
    return next((each for each in found if each.is_measured), TYPICAL)


def reported_loader(run: Run) -> ReportedLoader | None:
    """The loader that gave most of the batches; None where none was reported."""
    return max(run.timeline.loaders, key=lambda each: each.batches, default=None)


def batches_per_step(run: Run) -> int:
    """How many batches a step takes: several where gradients are accumulated; 1 where that is not known."""
    found = reported_loader(run)
    return max(round(found.batches_per_step), 1) if found else 1


def _contents(run: Run) -> tuple[float, float]:
    """Tensors and bytes of a batch of the reported loader, its first one; the usual ones where none was reported."""
    found = reported_loader(run)
    return (found.tensors, found.bytes) if found else (_USUAL_TENSORS, 0)


def cores(run: Run) -> Cores:
    """The cores of one training process: its share of what all may use together, unless it is bound to fewer."""
    # Ranks of several machines drive devices of the same numbers; without a GPU all are taken for one machine's.
    devices = Counter(place.device for place in run.places if place.device is not None)
    sharing = max(math.ceil(len(run.timeline.ranks) / max(devices.values(), default=1)), 1)
    threads = cpu_use.torch_threads(run) if host_places(run) else 1.0
    of_all = of_known(np.nanmin, run.timeline["cpu_samples"].floats("allowed_cores"))
    bound = of_known(np.nanmin, run.job.timeline["cpu_processes"].floats("allowed_cores"))
    count = bound / sharing if math.isnan(of_all) else float(np.fmin(bound, of_all / sharing))
    # What other programs used is free for workers when they have ended.
    left = cpu_use.idle_cores(run) + float(np.nan_to_num(cpu_use.cores_of_others(run)))
    known = Cores(count, left / sharing, cpu_use.cores_used(run))
    return replace(known, computing=known.count if math.isnan(threads) else threads)


def waits_for_files(run: Run) -> bool:
    """Does a loader in the training's own process mostly sleep, as one that waits for files, and was none tried?"""
    return trial(run) is None and _io_share(run, _wait_ns(run)) > MOST_OF_IT


def _wait_ns(run: Run) -> float:
    """How long the training waits for batches, in ns a step."""
    return run.mean(lambda place: place.idle_ns("input_wait"))


def _io_share(run: Run, wait_ns: float) -> float:
    """The share of its waits in which the training thread used no core: it neither ran nor waited for one (0-1).

    Where it waited for cores, torch's other threads did as well, for about as long, and it slept until they were done.
    """
    sleeping = cpu_use.sleeping_share(run) - float(np.nan_to_num(cpu_use.waiting_share(run)))
    if np.isnan(sleeping) or not host_places(run):
        return 0.0  # on a GPU the thread also waits for the device
    return float(np.clip(sleeping * run.step_ns / max(wait_ns, 1.0), 0, 1))

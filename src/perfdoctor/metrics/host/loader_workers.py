"""How long is a step whose batches come from worker processes: what does a batch cost then, and on which cores?

```
num_workers=0    │ fetch (wait) │ rest of the step │ fetch │ rest …
with workers     │ receive │ rest of the step │ receive │ rest …      the training process
                 │ fetch ‥ send │ fetch ‥ send │ …                    each worker, on a core of its own
```

The slowest of three limits a step: the training process, which receives a batch instead of making it
(`hardware/worker_batch.py`); the workers, each of which makes and sends a batch in one go; and the cores, which have
all that work to do (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969).

Where torch computes an op with as many threads as there are cores, a worker shares a core with one of them, and the
others wait for that one at the end of each op. Measured on two cores, a training and its workers then take as long as
one behind the other: 2.4 → 4.1 ms with batches from memory, 6.0 → 7.7 and 13.8 → 13.2 ms with samples made in Python,
12.8 → 16.0 ms with images; but 8.1 → 7.1 ms where torch had one thread.
"""

from __future__ import annotations

import math

from msgspec import Struct

from perfdoctor.hardware.worker_batch import WorkerBatch
from perfdoctor.metrics.units import ms
from perfdoctor.records.findings import Value

#: Tensors of a batch of unknown contents: what it is trained on, and its targets.
USUAL_TENSORS = 2
#: A worker that waits for files and networks alone still uses its core now and then.
_LEAST_OF_A_CORE = 0.05
_NAN = float("nan")


class Batch(Struct, frozen=True):
    """What a batch holds. NaN: not known."""

    tensors: float = _NAN
    bytes: float = _NAN


class Cores(Struct, frozen=True):
    """The cores of one training process, means over the steps; NaN where not known.

    `count`: that it may use; `idle`: of these, used by nobody; `own`: used by itself; `computing`: threads with which
    torch computes an op, 1 where a GPU does.
    """

    count: float = _NAN
    idle: float = _NAN
    own: float = _NAN
    computing: float = 1.0

    @property
    def is_known(self) -> bool:
        return not math.isnan(self.count)

    @property
    def taken(self) -> float:
        """Cores used by other processes: the workers that there are, and other programs."""
        both = self.count - self.idle - self.own
        return 0.0 if math.isnan(both) else max(both, 0.0)


class Feeding(Struct, frozen=True):
    """How the training is fed now. Times are ns a step, of which there is one a batch.

    `wait_ns`: the training waits for a worker, or makes the batch itself (`workers` 0); `io_share`: of that, in which
    it used no core. `pins`: will a thread of the training process copy batches into pinned memory, so that the training
    itself never touches the workers' memory?
    """

    step_ns: float
    wait_ns: float
    workers: int = 0
    io_share: float = 0.0
    pins: bool = True

    @property
    def rest_ns(self) -> float:
        """The step without the wait."""
        return max(self.step_ns - self.wait_ns, 0.0)


class Prospect(Struct, frozen=True):
    """With so many `workers` a step takes `likely_ns`, of which receiving a batch takes `receive_ns`.

    `crowded`: they have no core of their own.
    """

    workers: int
    likely_ns: float
    receive_ns: float
    crowded: bool

    def worker_values(self) -> dict[str, Value]:
        """The numbers in sentences and fixes about workers."""
        return {"workers": self.workers, "receive_ms": ms(self.receive_ns)}


def with_workers(feeding: Feeding, batch: Batch, cost: WorkerBatch, cores: Cores) -> Prospect:
    """The step with as many workers as making a batch needs and the cores allow."""
    tensors = USUAL_TENSORS if math.isnan(batch.tensors) else batch.tensors
    size = 0.0 if math.isnan(batch.bytes) else batch.bytes
    receive_ns = cost.receive_ns(tensors, size, pinned=feeding.pins)
    send_ns = 0.0 if feeding.workers else cost.send.ns(tensors, size)
    work_ns = (feeding.workers * feeding.step_ns or feeding.wait_ns) + send_ns
    trains_ns = feeding.rest_ns + receive_ns
    needed = max(math.ceil(work_ns / max(trains_ns, 1.0)), 1)
    if not cores.is_known:
        return Prospect(needed, max(trains_ns, work_ns / needed), receive_ns, crowded=False)
    # For how long making and sending a batch uses a core: workers that there are, as long as others than the training
    # used cores; without any, the wait in which the training used one.
    computes_ns = work_ns
    if not feeding.workers:
        computes_ns -= feeding.io_share * feeding.wait_ns
    elif not math.isnan(cores.count - cores.idle - cores.own):
        computes_ns = min(cores.taken * feeding.step_ns, work_ns)
    of_a_core = max(computes_ns / max(work_ns, 1.0), _LEAST_OF_A_CORE)
    shared_ns = _shared_ns(feeding, cores, trains_ns, computes_ns, receive_ns + send_ns)
    most = min(needed, max(feeding.workers, math.floor(cores.count / of_a_core), 1))
    crowded = Prospect(most, max(shared_ns, work_ns / most), receive_ns, crowded=True)
    added = math.floor(_free(feeding, cores) / of_a_core)
    if added < 1:
        return crowded
    count = min(needed, feeding.workers + added)
    apart = Prospect(count, max(trains_ns, work_ns / count), receive_ns, crowded=False)
    if cores.computing > 1 and crowded.likely_ns < apart.likely_ns:  # they hardly compute: more of them share a core
        return crowded
    return apart


def _free(feeding: Feeding, cores: Cores) -> float:
    """How many cores nobody uses while the training does not wait."""
    own = cores.computing
    if not math.isnan(cores.own) and feeding.rest_ns:
        fetching_ns = 0.0 if feeding.workers else (1 - feeding.io_share) * feeding.wait_ns
        own = min(own, max(cores.own * feeding.step_ns - fetching_ns, 0.0) / feeding.rest_ns)
    return max(cores.count - cores.taken - max(own, 1.0), 0.0)


def _shared_ns(feeding: Feeding, cores: Cores, trains_ns: float, computes_ns: float, added_ns: float) -> float:
    """The step in ns where workers share cores with the training.

    One behind the other where torch's threads take them all, but with more workers no longer than it is; else all work
    of a step on all cores.
    """
    if cores.computing > 1:
        behind_ns = trains_ns + computes_ns
        return min(behind_ns, feeding.step_ns) if feeding.workers else behind_ns
    used = cores.count - cores.idle
    work_ns = (cores.count if math.isnan(used) else used) * feeding.step_ns + (0.0 if feeding.workers else added_ns)
    return max(trains_ns, work_ns / cores.count)

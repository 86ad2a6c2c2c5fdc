"""How long is a step whose batches come from worker processes: what does a batch cost then, and on which cores?

```
num_workers=0    │ fetch (wait) │ rest of the step │ fetch │ rest …
with workers     │ receive │ rest of the step │ receive │ rest …      the training process
                 │ fetch ‥ send │ fetch ‥ send │ …                    each worker, on a core of its own
```

The slower of two limits a step: the training process, which receives a batch instead of making it, and the workers,
each of which makes and sends a batch in one go. Where no core is left for a worker beside the training, what it
computes comes on top of the training's time: where torch computes an op with as many threads as there are cores, a
worker shares a core with one of them, and the others wait for that one at the end of each op. Measured on two cores,
a training and one worker then take as long as one behind the other: 2.4 → 4.1 ms with batches from memory, 6.0 → 7.7
with samples made in Python, 12.8 → 16.5, 19 → 25 and 111 → 130 ms with images; but 8.1 → 7.1 ms where torch had one
thread. A core that is partly free does not help them: torch's threads wait actively. At best they share all cores
without loss (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.metrics.units import ms
from perfdoctor.records.findings import Value

#: A worker that waits for files and networks alone still uses its core now and then.
_LEAST_OF_A_CORE = 0.05
#: More workers than this are not looked for: each holds memory of its own.
_MOST_WORKERS = 64
#: Fewer workers are advised where more bring so little more.
_AS_GOOD = 1.03
#: Twice as many workers that were less than this times as fast were held up by what still more would share, too.
_SCALES = 1.6
#: `prefetch_factor`, batches that torch asks each worker for ahead.
_USUAL_PREFETCH = 2
_NAN = float("nan")


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
    """How the training is fed now. Times are ns of a step that takes one batch, or that batch's share of one.

    `wait_ns`: the training waits for a worker, or makes the batch itself (`workers` 0); `fetch_cpu_ns`: of that it
    computes. `epoch`: batches of an epoch, 0 where that is not known.
    """

    step_ns: float
    wait_ns: float
    workers: int = 0
    fetch_cpu_ns: float = 0.0
    epoch: int = 0

    @property
    def rest_ns(self) -> float:
        """The step without the wait."""
        return max(self.step_ns - self.wait_ns, 0.0)


class Supply(Struct, frozen=True):
    """What a batch costs that comes from a worker, in ns.

    `work_ns`: to make and send it, of which `cpu_ns` on a core; `slowest_ns`: the slowest one; `receive_ns`: the
    training process, to receive it, at most `most_receive_ns`. `paces`: from one batch to the next with so many
    workers, as it was tried. `is_tried`: in the recorded program itself.
    """

    work_ns: float
    cpu_ns: float
    receive_ns: float
    most_receive_ns: float
    slowest_ns: float = 0.0
    paces: Mapping[int, float] = field(default_factory=dict)
    is_tried: bool = False

    @property
    def of_a_core(self) -> float:
        """The share of its time in which a worker computes (0-1)."""
        return min(max(self.cpu_ns / max(self.work_ns, 1.0), _LEAST_OF_A_CORE), 1.0)

    def pace_ns(self, workers: int, cores: float) -> float:
        """From one batch to the next with so many workers that have the cores for themselves."""
        known = [count for count in self.paces if count <= workers]
        if not known:
            return max(self.work_ns / workers, self.cpu_ns / min(cores, workers))
        most = max(known)
        if most == workers or self.paces.get(most // 2, math.inf) < _SCALES * self.paces[most]:
            return self.paces[most]
        of_more = [pace_ns for count, pace_ns in self.paces.items() if count > workers]
        return max(self.paces[most] * most / workers, self.cpu_ns / cores, min(of_more, default=0.0))


class Prospect(Struct, frozen=True):
    """With so many `workers` a step takes `likely_ns`, `best_ns` at least and `worst_ns` at most.

    Receiving its `batches` takes `receive_ns` of it. `crowded`: with cores of their own it would be shorter.
    `prefetch`: batches that each is to have ahead, against slow ones.
    """

    workers: int
    likely_ns: float
    best_ns: float
    worst_ns: float
    receive_ns: float
    crowded: bool = False
    prefetch: int = _USUAL_PREFETCH
    batches: int = 1

    def of_step(self, batches: int) -> Prospect:
        """Return what workers do for a step that takes so many `batches` instead of one."""
        return replace(
            self,
            likely_ns=batches * self.likely_ns,
            best_ns=batches * self.best_ns,
            worst_ns=batches * self.worst_ns,
            receive_ns=batches * self.receive_ns,
            batches=batches,
        )

    @property
    def receive_batch_ns(self) -> float:
        """What receiving one batch takes."""
        return self.receive_ns / self.batches

    def worker_values(self) -> dict[str, Value]:
        """The numbers in sentences and fixes about workers."""
        return {
            "workers": self.workers, "prefetch": self.prefetch, "receive_ms": ms(self.receive_batch_ns),
            "with_workers_ms": ms(self.likely_ns),
        }  # fmt: skip


def with_workers(feeding: Feeding, supply: Supply, cores: Cores) -> Prospect:
    """The step with as few workers as bring nearly the most."""
    trains_ns = feeding.rest_ns + supply.receive_ns
    needed = min(max(math.ceil(supply.work_ns / max(trains_ns, 1.0)), 1, feeding.workers), _MOST_WORKERS)
    tried = max(supply.paces, default=1)
    counts = range(max(feeding.workers, 1), max(needed, tried) + 1)
    found = _fewest(_with(count, feeding, supply, cores) for count in counts)
    alone = _fewest(_with(count, feeding, supply, Cores()) for count in counts)
    return replace(found, crowded=found.likely_ns > _AS_GOOD * alone.likely_ns)


def _fewest(found: Iterable[Prospect]) -> Prospect:
    """That with the fewest workers of those with nearly the shortest step."""
    ordered = list(found)
    best_ns = min(each.likely_ns for each in ordered)
    return next(each for each in ordered if each.likely_ns <= _AS_GOOD * best_ns)


def _with(workers: int, feeding: Feeding, supply: Supply, cores: Cores) -> Prospect:
    count = cores.count if cores.is_known else math.inf
    pace_ns = supply.pace_ns(workers, count)
    wanted, now = workers * supply.of_a_core, feeding.workers * supply.of_a_core
    free = _free(feeding, cores) + min(now, cores.taken) if cores.is_known else math.inf
    # Several workers that share cores with torch's threads were rarely faster than one: that must have been seen.
    computed_ns = pace_ns * supply.of_a_core if free >= wanted or workers in supply.paces else supply.cpu_ns
    first_ns = max(supply.work_ns - pace_ns, 0.0) / feeding.epoch if feeding.epoch else 0.0

    def shared_ns(receive_ns: float, of_others: float = 0.0) -> float:
        """All work of a step on all cores but those `of_others`, without loss."""
        work_ns = _work_ns(feeding, supply, cores) / max(count - of_others, 1.0)
        return max(pace_ns, feeding.rest_ns + receive_ns, work_ns) + first_ns

    def step_ns(receive_ns: float) -> float:
        """Where torch has several threads, only on cores of their own do workers compute beside the training."""
        if cores.computing <= 1:
            return shared_ns(receive_ns, max(cores.taken - now, 0.0))
        trains_ns = feeding.rest_ns + receive_ns
        # What is computed on the same cores takes no less time than before.
        sharing_ns, beside_ns = max(computed_ns, feeding.fetch_cpu_ns), max(computed_ns - trains_ns, 0.0)
        beyond_ns = sharing_ns if free < wanted else beside_ns
        return max(shared_ns(receive_ns), trains_ns + beyond_ns + first_ns)

    likely_ns = step_ns(supply.receive_ns)
    slowest = supply.slowest_ns / max(workers * likely_ns, 1.0)
    return Prospect(
        workers,
        likely_ns,
        shared_ns(supply.receive_ns),
        step_ns(supply.most_receive_ns),
        supply.receive_ns,
        prefetch=max(math.ceil(slowest) + 1, _USUAL_PREFETCH),
    )


def _free(feeding: Feeding, cores: Cores) -> float:
    """How many cores nobody uses while the training does not wait."""
    own = cores.computing
    if not math.isnan(cores.own) and feeding.rest_ns:
        own = min(own, max(cores.own * feeding.step_ns - feeding.fetch_cpu_ns, 0.0) / feeding.rest_ns)
    return max(cores.count - cores.taken - max(own, 1.0), 0.0)


def _work_ns(feeding: Feeding, supply: Supply, cores: Cores) -> float:
    """Ns of a core that the training and its workers need for a step; 0 where that is not known."""
    own_ns = cores.own * feeding.step_ns - feeding.fetch_cpu_ns + supply.receive_ns + supply.cpu_ns
    return 0.0 if math.isnan(own_ns) else own_ns

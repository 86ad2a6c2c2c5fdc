"""What does a batch cost to make, and to get from a worker? Measured in a copy of the program, by torch's own loader.

```
make       │ make │ make │ …                 as a worker makes it: torch has one thread
ready      one worker │ make ‥ send │        the copy takes a batch that is ready: that is what receiving it costs
1, 2, 4    workers    │ make ‥ send │ …      the copy takes batches as they come: how fast they can come
```
"""

from __future__ import annotations

import copy
import gc
import os
import signal
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from perfdoctor_agent import apart, processor
from perfdoctor_agent.loaders import Source, tensors_in

WORKERS = (1, 2, 4)
#: Batches are made for so long, and taken from workers for so long for each number of them.
_MAKING_S, _TAKING_S = 0.3, 0.25
#: At most so many, at least so many of each worker; so many are taken when they are ready.
_MOST, _FEWEST, _READY = 48, 3, 3
#: A batch that takes longer is copied instead, in the worker, to see what passing it on costs.
_LONG_NS = 120_000_000
#: Copies of more are not made.
_MOST_BYTES = 256 << 20
#: Of smaller tensors few pages are touched.
_LARGE_BYTES, _PAGE_BYTES = 1 << 16, 4096
_POLL_S, _SETTLE_S = 0.0002, 0.06
#: About what it takes to fork a worker, with the queues and threads around it, of a small program.
_START_S = 0.05


class _Batches:
    """A dataset of whole batches, each by a call of `make` with its number."""

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        return self.make(number)


def measure(torch: Any, source: Source, guard: apart.Guard, tell: Callable[..., None], deadline: float) -> None:
    """Report one group of facts after the other, until all are reported or time (of `time.monotonic`) is short."""
    gc.freeze()  # what the program has left to be collected is collected by itself alone
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    indices = list(islice(iter(source.sampler), _MOST))

    def make(number: int) -> Any:
        with guard.within():
            return source.batch(indices[number % len(indices)])

    with apart.files_do_not_grow():
        batch, rows = _made(make, len(indices))
    make_ns, cpu_ns, delay_ns = (statistics.mean(column) for column in zip(*rows, strict=True))
    tell(
        makes=len(rows), make_ns=round(make_ns), make_cpu_ns=round(cpu_ns), make_delay_ns=round(delay_ns),
        slowest_ns=max(row[0] for row in rows),
    )  # fmt: skip
    if torch.multiprocessing.get_sharing_strategy() != "file_descriptor":
        return  # the other one leaves a process behind
    if make_ns > _LONG_NS:
        if sum(each.numel() * each.element_size() for each in tensors_in(torch.Tensor, batch)) < _MOST_BYTES:
            copies = _Taking(torch, lambda _: copy.deepcopy(batch), 0.0, 1)
            tell(receive_ns=copies.ready_ns())
        return
    start_s = _START_S
    for workers in WORKERS:
        if time.monotonic() + start_s + _count(make_ns, workers) * make_ns / 1e9 / workers > deadline:
            return
        taking = _Taking(torch, make, make_ns, workers)
        start_s = 2 * taking.start_ns / 1e9  # of twice as many
        if workers == 1:
            tell(receive_ns=taking.ready_ns())
        tell(taken=taking.facts())


def _made(make: Callable[[int], Any], most: int) -> tuple[Any, list[tuple[int, ...]]]:
    """The last batch, and ns of each: by the clock, of the processor, and without a core although it was ready to run.

    Of the first one not, as files are opened.
    """
    rows, batch, thread = [], None, str(threading.get_native_id())
    end = time.monotonic() + _MAKING_S

    def now() -> tuple[int, int, int]:
        return time.perf_counter_ns(), time.process_time_ns(), processor.delay_ns(thread)

    for number in range(most):
        begun = now()
        batch = make(number)
        rows.append(tuple(after - before for before, after in zip(begun, now(), strict=True)))
        if time.monotonic() > end:
            break
    return batch, rows[1:] or rows


def _count(make_ns: float, workers: int) -> int:
    wanted = round(_TAKING_S * 1e9 / max(make_ns / workers, 1e6))
    return min(max(wanted, (_FEWEST + 1) * workers), _MOST) + (_READY if workers == 1 else 0)


class _Taking:
    """Batches from so many workers of a loader as a program makes it."""

    def __init__(self, torch: Any, make: Callable[[int], Any], make_ns: float, workers: int) -> None:
        self.torch, self.workers, self.make_ns = torch, workers, make_ns
        self.left = _count(make_ns, workers)
        dataset = _Batches(make, self.left)
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=None, collate_fn=_same, num_workers=workers, multiprocessing_context="fork",
            worker_init_fn=apart.die_with_parent,
        )  # fmt: skip
        begun = time.perf_counter_ns()
        self.iterator = iter(loader)
        self._take()
        self.start_ns = max(round(time.perf_counter_ns() - begun - make_ns), 0)

    def _take(self) -> Any:
        self.left -= 1
        return next(self.iterator)

    def ready_ns(self) -> int:
        """Ns to receive and to touch a batch that is ready, and to free the one before; the least of some.

        While a worker computes in Python, each tensor waits for its lock: up to 5 ms. What that costs is in the pace.
        """
        found, batch = [], None
        for _ in range(_READY):
            end = time.monotonic() + 1.0
            while self.iterator._worker_result_queue.empty() and time.monotonic() < end:
                time.sleep(_POLL_S)
            time.sleep(min(2.2 * self.make_ns / 1e9, _SETTLE_S))  # the worker makes the next ones, and rests
            begun = time.perf_counter_ns()
            batch = self._take()
            _touch(self.torch.Tensor, batch)
            found.append(time.perf_counter_ns() - begun)
        del batch
        return min(found)

    def facts(self) -> dict[str, int]:
        """Ns a batch as fast as batches come: by the clock; of the processor, in the workers and here; and of what the
        workers were ready to run without a core.
        """
        for _ in range(self.workers - 1):  # all begin at the same time
            self._take()
        count = self.left
        begun = self._now()
        for _ in range(count):
            self._take()
        wall_ns, cpu_ns, own_cpu_ns, delay_ns = (
            (after - before) // count for before, after in zip(begun, self._now(), strict=True)
        )
        self._end()
        return {
            "workers": self.workers, "batch_ns": wall_ns, "cpu_ns": cpu_ns, "own_cpu_ns": own_cpu_ns,
            "delay_ns": delay_ns, "start_ns": self.start_ns,
        }  # fmt: skip

    def _now(self) -> tuple[int, int, int, int]:
        """Ns until now: by the clock, of the workers on cores, of this thread on one, of the workers without one."""
        workers = [_scheduled_ns(worker.pid) for worker in self.iterator._workers]
        cpu_ns, delay_ns = (sum(column) for column in zip(*workers, strict=True))
        return time.perf_counter_ns(), cpu_ns, time.thread_time_ns(), delay_ns

    def _end(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler takes it for an accident
        for worker in self.iterator._workers:
            worker.kill()


def _scheduled_ns(pid: int) -> tuple[int, int]:
    """Ns that a process has run with all its threads, and that these were ready to run without a core (schedstat of
    proc(5)).
    """
    cpu_ns, delay_ns, folder = 0, 0, f"/proc/{pid}/task"
    for thread in os.listdir(folder):
        with open(os.path.join(folder, thread, "schedstat"), "rb") as file:
            ran, waited, _ = file.read().split()
        cpu_ns += int(ran)
        delay_ns += int(waited)
    return cpu_ns, delay_ns


def _touch(tensor: Any, batch: Any) -> None:
    """Touch each page of large tensors: those from a worker get their pages when they are touched first."""
    for each in _large(tensor, batch):
        each.flatten()[:: max(_PAGE_BYTES // each.element_size(), 1)].sum()


def _large(tensor: Any, batch: Any) -> Iterator[Any]:
    for each in tensors_in(tensor, batch):
        if each.is_contiguous() and each.numel() * each.element_size() >= _LARGE_BYTES:
            yield each


def _same(batch: Any) -> Any:
    return batch

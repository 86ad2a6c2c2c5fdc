"""How do the workers of a Dask cluster do what `pool.each` asks? Dask schedules; nothing here does."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from perfdoctor import __version__
from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.patterns import regex
from perfdoctor.system.pool import Item, ItemOutcome, Result, WorkerDiedError, outcome_of, packed, unpacked
from perfdoctor.system.processors import JOBS, worker_count
from perfdoctor.system.progress import Progress, silent

if TYPE_CHECKING:
    from distributed import Client, Future

_LOCAL = regex(r"local(?:\[(\d{1,4})\])?")
_ADDRESS = regex(r"(tcp|tls|ucx|ucxx|ws|wss)://[^\s/]+(/\S*)?")
#: A scheduler that does not answer for so long is not there.
_TIMEOUT_S = 15
#: Managers of clusters give out workers in minutes; one that has none for so long has none to give.
_WORKERS_S = 300.0
#: So often is looked whether a result is there, and the scheduler asked for its workers.
_LOOK_S, _ASK_S = 0.01, 1.0
#: So many items for each thread of the cluster are on their way: the next one is there when the last one is done, and
#: no more results than these wait in the workers' memory.
_AHEAD = 2


def checked(cluster: str) -> str:
    """`cluster` again, if it is `local[N]` or the address of a scheduler. Raises UsageError if it is neither."""
    local = _LOCAL.fullmatch(cluster)
    if (local and local[1] != "0") or _ADDRESS.fullmatch(cluster):
        return cluster
    raise UsageError(
        f"--cluster {cluster}: that names no Dask cluster",
        do="Give the address of its scheduler, --cluster tcp://HOST:8786, or workers on this machine: local[4].",
    )


def each(
    function: Callable[[Item], Result], items: Sequence[Item], cluster: str, progress: Progress = silent
) -> Generator[ItemOutcome[Result], None, None]:
    """The outcome of every item, as soon as it is there.

    Raises PerfdoctorError where there is no such cluster, or it has no worker for `_WORKERS_S`, also in between.
    """
    with _opened(cluster) as client, _while_it_answers(cluster):
        yield from _outcomes(_Workers(client, cluster, progress), function, items)


class _Workers:
    """The workers of a cluster, which may come later, and be gone in between."""

    def __init__(self, client: Client, cluster: str, progress: Progress) -> None:
        self.client, self._cluster, self._progress = client, cluster, progress
        self._none_since: float | None = None
        self._ask_at = 0.0

    @property
    def threads(self) -> int:
        return sum(self.client.nthreads().values())

    def awaited(self) -> None:
        """Say once that there is none. Raises PerfdoctorError where there has been none for too long."""
        now = time.monotonic()
        if now < self._ask_at:
            return
        self._ask_at = now + _ASK_S
        if self.threads:
            self._none_since = None
            return
        if self._none_since is None:
            self._none_since = now
            self._progress(f"Waiting for workers of the cluster, {_WORKERS_S:.0f} s at most")
        if now - self._none_since > _WORKERS_S:
            raise PerfdoctorError(
                f"the Dask cluster at {self._cluster} has had no worker for {_WORKERS_S:.0f} s",
                do=f"Start some: dask worker {self._cluster}",
            )


def _outcomes(
    workers: _Workers, function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[ItemOutcome[Result]]:
    """The outcome of every item. Those that Dask blames for a dead worker are tried again, alone: some only waited."""
    blamed = []
    for outcome in _done(workers, function, items, range(len(items))):
        if isinstance(outcome.error, WorkerDiedError):
            blamed.append(outcome.index)
        else:
            yield outcome
    for index in sorted(blamed):
        yield from _done(workers, function, items, [index])


def _done(
    workers: _Workers, function: Callable[[Item], Result], items: Sequence[Item], indices: Sequence[int]
) -> Iterator[ItemOutcome[Any]]:
    """The outcomes of the items at these indices, of which at most _AHEAD for each thread are on their way."""
    from distributed import as_completed  # noqa: PLC0415

    client = workers.client
    waiting, done = iter(indices), as_completed(loop=client.loop)
    running: dict[Future, int] = {}
    while True:
        most = _AHEAD * max(1, workers.threads)
        while len(running) < most and (index := next(waiting, None)) is not None:
            future = client.submit(_tried, function, items[index], __version__, pure=False)
            running[future] = index
            done.add(future)
        if not running:
            return
        while not (ready := done.next_batch(block=False)):
            workers.awaited()
            time.sleep(_LOOK_S)
        yield from (_outcome(future, running.pop(future)) for future in ready)


def _tried(function: Callable[[Item], Result], item: Item, version: str) -> bytes:
    """The packed outcome of `function(item)`, in a worker of the cluster, which must have this `version`."""
    if version != __version__:
        raise PerfdoctorError(
            f"a worker of the cluster has perfdoctor {__version__}, and this is {version}", do=_install_on_workers()
        )
    os.environ.setdefault(JOBS, "1")  # the other cores have workers of their own
    return packed(outcome_of(function, item))


def _outcome(future: Future, index: int) -> ItemOutcome[Any]:
    """The outcome of item `index` that a worker sent; raises PerfdoctorError for what concerns all items."""
    from distributed import KilledWorker  # noqa: PLC0415

    try:
        return unpacked(future.result(), index)
    except KilledWorker:
        what = "every worker of the cluster that had it ended without a result"
        return ItemOutcome(index, error=WorkerDiedError(what))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "perfdoctor":
            raise
        raise PerfdoctorError("a worker of the cluster has no perfdoctor", do=_install_on_workers()) from error


def _install_on_workers() -> str:
    return f"Install the same on every worker: pip install perfdoctor=={__version__}"


@contextmanager
def _opened(cluster: str) -> Iterator[Client]:
    """A client of the cluster; workers that were started for it end with it."""
    checked(cluster)
    try:
        import distributed  # noqa: PLC0415 an extra, and large
    except ModuleNotFoundError as error:
        raise PerfdoctorError(
            "--cluster needs Dask, which is not installed", do="Run: pip install 'perfdoctor[cluster]'."
        ) from error
    with ExitStack() as stack:
        if local := _LOCAL.fullmatch(cluster):
            workers = int(local[1]) if local[1] else worker_count()
            yield stack.enter_context(_local(workers, stack))
            return
        try:
            client = distributed.Client(cluster, timeout=_TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError) as error:  # TimeoutError as well
            raise PerfdoctorError(
                f"no Dask scheduler answers at {cluster}",
                do="Is it running, and reached from here? Start one: dask scheduler; then dask worker ADDRESS.",
            ) from error
        yield stack.enter_context(client)


def _local(workers: int, stack: ExitStack) -> Client:
    import dask  # noqa: PLC0415
    import distributed  # noqa: PLC0415

    # Who is blamed is tried again below: no need to lose more workers before.
    stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
    with _without_interrupts():  # Dask cannot close what it has not yet started
        started = stack.enter_context(
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
            )
        )
    return distributed.Client(started, set_as_default=False)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started inside, until they are ready; this process gets it afterwards."""
    came: list[object] = []
    with _deferred(came), _blocked_for_children():
        yield
    if came:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _deferred(came: list[object]) -> Iterator[None]:
    """Collect Ctrl-C in `came` instead of raising it: any thread may get it, so that blocking it here is not enough."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *what: came.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _blocked_for_children() -> Iterator[None]:
    """Block Ctrl-C in the processes and threads that begin inside."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker  # noqa: PLC0415 not there on Windows

    resource_tracker.ensure_running()  # its start would end the block before ours has begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _while_it_answers(cluster: str) -> Iterator[None]:
    from distributed.comm import CommClosedError  # noqa: PLC0415

    try:
        yield
    except (CommClosedError, CancelledError) as error:
        raise PerfdoctorError(
            f"the Dask scheduler at {cluster} does not answer any more", do="Look into its log, and start again."
        ) from error

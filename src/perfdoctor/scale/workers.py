"""How is one function applied to many items, by several processes of this machine or by those of a cluster?

Each worker process has one item at a time, so a worker that dies takes nothing else with it, and no more results are
in memory than there are workers. Workers are spawned, not forked: macOS and Windows need it, and a fork of a process
with threads may hang. They import nothing of the program that started them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system import own_process
from perfdoctor.system.processors import JOBS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

Item = TypeVar("Item")
Result = TypeVar("Result")
#: Called with how many items are done, and of how many.
Counted = Callable[[int, int], None]

#: An item whose worker dies gets another one, once: the machine may only have lacked memory in that moment.
_TRIES = 2
#: A worker that is asked to end gets this long to end what it has started itself.
_END_S = 2.0


class Outcome(Struct, Generic[Result], frozen=True):
    """What became of the item at `index`: its result, or else the error that was raised."""

    index: int
    result: Result | None = None
    error: Exception | None = None

    def value(self) -> Result:
        """The result. Raises the error where there is one."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class WorkerDiedError(PerfdoctorError):
    """Every process that had this item ended before it had a result. `what`: which ones."""

    def __init__(self, what: str, *, do: str = "Does it have enough memory? Fewer processes need less.") -> None:
        super().__init__(what, do=do)


def each(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int,
    cluster: str | None = None,
    progress: Counted | None = None,
) -> Generator[Outcome[Result], None, None]:
    """The outcome of `function(item)` for every item, as soon as it is there and so in no certain order.

    Function, items and results are pickled; with one worker, or one item, all is done in this process instead. An
    Exception is an outcome as well. Whoever stops to iterate leaves no worker behind. `cluster`: what
    `cluster.checked` takes; `workers` does not count there.
    """
    outcomes: Generator[Outcome[Result], None, None]
    if cluster is not None:
        from perfdoctor.scale import cluster as clusters  # noqa: PLC0415 Dask is an extra, and large

        outcomes = clusters.each(function, items, cluster)
    elif min(workers, len(items)) <= 1:
        outcomes = (outcome_of(function, item, index) for index, item in enumerate(items))
    else:
        outcomes = _Pool(function, items, workers).outcomes()
    with contextlib.closing(outcomes):
        for done, outcome in enumerate(outcomes, 1):
            if progress:
                progress(done, len(items))
            yield outcome


def outcome_of(function: Callable[[Item], Result], item: Item, index: int = 0) -> Outcome[Result]:
    try:
        return Outcome(index, function(item))
    except Exception as error:  # noqa: BLE001 the error is the outcome
        return Outcome(index, error=error)


# --- an outcome on its way ------------------------------------------------------------------------------------------


def packed(outcome: Outcome[Any]) -> bytes:
    """The outcome for `unpacked`; an error where it, or its own error, cannot be sent."""
    error = outcome.error
    where = "" if error is None or isinstance(error, PerfdoctorError) else "".join(traceback.format_exception(error))
    try:
        sent = pickle.dumps((outcome.result, error, where), protocol=pickle.HIGHEST_PROTOCOL)
        if error is not None:
            pickle.loads(sent)  # noqa: S301 our own: an exception may have an __init__ that pickle cannot call
    except Exception as other:  # noqa: BLE001 whatever it is: somebody waits for an outcome
        text = "".join(traceback.format_exception(other))
        return pickle.dumps((None, RuntimeError(f"cannot be sent: {error or other!r}"), where or text))
    return sent


def unpacked(sent: bytes, index: int) -> Outcome[Any]:
    """What `packed` sent; an error of ours knows from which line of the worker it comes."""
    result, error, where = pickle.loads(sent)  # noqa: S301 from a process of ours
    if where:
        error.__cause__ = _InWorker(where)
    return Outcome(index, result, error)


class _InWorker(Exception):  # noqa: N818 never raised: it is the cause of what is
    """Where in the worker an error was raised, as text: a traceback cannot be sent."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


# --- in this process: who works on what ------------------------------------------------------------------------------


class _Worker:
    """One process, and the item that it has."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.index = -1
        self.process: SpawnProcess = context.Process(target=_work, args=(theirs, function), daemon=True)
        with _without_main():
            self.process.start()
        theirs.close()

    def give(self, index: int, item: object) -> None:
        self.index = index
        with contextlib.suppress(OSError):  # it died: whoever waits for it finds that out
            self.connection.send(item)

    def take(self) -> Outcome[Any] | None:
        """What came of its item; None if it died."""
        try:
            return unpacked(self.connection.recv_bytes(), self.index)
        except (EOFError, OSError):
            return None

    def how_it_died(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


class _Pool(Generic[Item, Result]):
    def __init__(self, function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> None:
        self._function, self._items = function, items
        self._count = min(workers, len(items))
        self._waiting = list(reversed(range(len(items))))
        self._tries = [0] * len(items)
        self._workers: list[_Worker] = []

    def outcomes(self) -> Generator[Outcome[Result], None, None]:
        try:
            while len(self._workers) < self._count:
                self._start()
            while self._workers:
                yield from self._next()
        finally:
            _end(self._workers)

    def _start(self) -> None:
        with without_interrupts():
            worker = _Worker(self._function)
            self._workers.append(worker)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        """The next item that waits; the worker ends where none does."""
        if not self._waiting:
            self._workers.remove(worker)
            _end([worker])
            return
        index = self._waiting.pop()
        self._tries[index] += 1
        worker.give(index, self._items[index])

    def _next(self) -> Iterator[Outcome[Result]]:
        """The outcomes of the workers that have one; each works on while its outcome is used."""
        by_connection = {worker.connection: worker for worker in self._workers}
        for ready in connection.wait(list(by_connection)):
            worker = by_connection[ready]  # type: ignore[index]
            outcome = worker.take()
            if outcome is None:
                yield from self._lost(worker)
            else:
                self._give(worker)
                yield outcome

    def _lost(self, worker: _Worker) -> Iterator[Outcome[Result]]:
        how = worker.how_it_died()
        self._workers.remove(worker)
        _end([worker])
        if self._tries[worker.index] < _TRIES:
            self._waiting.append(worker.index)
        else:
            yield Outcome(worker.index, error=WorkerDiedError(f"two worker processes ended without a result, {how}"))
        if self._waiting:
            self._start()


def _end(workers: Sequence[_Worker]) -> None:
    """None of them is left afterwards, whatever they do."""
    for worker in workers:
        worker.connection.close()
        worker.process.terminate()
    until = time.monotonic() + _END_S
    for worker in workers:
        worker.process.join(max(0, until - time.monotonic()))
        worker.process.kill()
        worker.process.join()
        worker.process.close()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A process that is spawned here imports no main module: it would run a script again that does not expect it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = type(sys)("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """A process that is started here sees no Ctrl-C until it is ready for one; this process sees it afterwards."""
    came: list[object] = []
    with _deferred(came), _blocked_for_children():
        yield
    if came:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _deferred(came: list[object]) -> Iterator[None]:
    """Any thread may get the signal, so that blocking it in this one is not enough."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *what: came.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _blocked_for_children() -> Iterator[None]:
    """Processes and threads that begin here begin with Ctrl-C blocked."""
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


# --- in a worker -----------------------------------------------------------------------------------------------------


def _work(items: Connection, function: Callable[[Any], Any]) -> None:
    own_process.take()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal: the first one acts on it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # tools that it started are ended
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ[JOBS] = "1"  # the other cores have workers of their own
    with contextlib.suppress(EOFError, OSError):  # nobody is there any more who wants something
        while True:
            items.send_bytes(packed(outcome_of(function, items.recv())))


def _end_with_parent() -> None:
    """A parent that is killed ends nobody: its workers look for themselves."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_S)
    os._exit(1)

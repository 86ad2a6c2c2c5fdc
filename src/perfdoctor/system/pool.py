"""How is one function applied to many items, by several processes of this machine that share nothing?

Each worker has one item at a time, so a worker that dies takes nothing else with it, and no more results are in memory
than there are workers. docs/decisions/2026-11-24-parallel-work-in-two-ways.md says why no library does it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Generic, TypeVar

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.processors import JOBS
from perfdoctor.system.spawned import Spawned, own_streams, receive, send

Item = TypeVar("Item")
Result = TypeVar("Result")

#: An item whose worker dies gets another one, once: the machine may only have lacked memory in that moment.
_TRIES = 2
#: A worker that is asked to end gets this long to end what it has started itself.
_END_S = 2.0


class ItemOutcome(Struct, Generic[Result], frozen=True):
    """The outcome of the item at `index`: its result, or else the error that was raised."""

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
    function: Callable[[Item], Result], items: Sequence[Item], *, workers: int
) -> Generator[ItemOutcome[Result], None, None]:
    """The outcome of `function(item)` for every item, as soon as it is there and so in no certain order.

    Function, items and results are pickled; with one worker, or one item, all is done in this process instead. An
    Exception is an outcome as well. Whoever stops to iterate leaves no worker behind.
    """
    count = min(workers, len(items))
    if count <= 1:
        yield from (outcome_of(function, item, index) for index, item in enumerate(items))
        return
    pool = _Pool(function)
    # A thread waits for each worker, as pipes can be waited for together on some systems only.
    with ThreadPoolExecutor(count) as threads, contextlib.closing(pool):
        waiting = (threads.submit(pool.outcome, index, item) for index, item in enumerate(items))
        running: set[Future[ItemOutcome[Result]]] = set(islice(waiting, count))
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running.update(islice(waiting, len(done)))
            while done:
                yield done.pop().result()


def outcome_of(function: Callable[[Item], Result], item: Item, index: int = 0) -> ItemOutcome[Result]:
    """The outcome of `function(item)`, in this process; an Exception is one too."""
    try:
        return ItemOutcome(index, function(item))
    except Exception as error:  # noqa: BLE001 the error is the outcome
        return ItemOutcome(index, error=error)


# --- an outcome on its way ------------------------------------------------------------------------------------------


def packed(outcome: ItemOutcome[Any]) -> bytes:
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


def unpacked(sent: bytes, index: int) -> ItemOutcome[Any]:
    """The outcome that `packed` made; the cause of an unexpected error names the worker's line."""
    result, error, where = pickle.loads(sent)  # noqa: S301 from a process of ours
    if where:
        error.__cause__ = _InWorker(where)
    return ItemOutcome(index, result, error)


class _InWorker(Exception):  # noqa: N818 never raised: it is the cause of what is
    """Where in the worker an error was raised, as text: a traceback cannot be sent."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


# --- in this process: who works on what ------------------------------------------------------------------------------


class _Pool(Generic[Item, Result]):
    """Workers that apply one function. A thread takes one for the time of an item, and starts one if none is idle."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        self._function = pickle.dumps(function, protocol=pickle.HIGHEST_PROTOCOL)
        self._workers: list[Spawned] = []
        self._idle: list[Spawned] = []
        self._changing = threading.Lock()
        self._is_closed = False

    def outcome(self, index: int, item: Item) -> ItemOutcome[Result]:
        """The outcome of the item; WorkerDiedError where two workers died of it."""
        asked = pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL)
        how = ""
        for _ in range(_TRIES):
            worker = self._worker()
            try:
                send(worker.questions, asked)
                sent = receive(worker.answers)
            except (OSError, ValueError):  # it died, or was ended
                sent = None
            if sent is not None:
                self._idle.append(worker)
                return unpacked(sent, index)
            code = worker.exit_code()
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            worker.end()
        return ItemOutcome(index, error=WorkerDiedError(f"two worker processes ended without a result, {how}"))

    def _worker(self) -> Spawned:
        with self._changing:
            if self._is_closed:
                raise RuntimeError("nobody wants the rest")
            if self._idle:
                return self._idle.pop()
            worker = Spawned(__name__, environment={JOBS: "1"})  # the other cores have workers of their own
            self._workers.append(worker)
        with contextlib.suppress(OSError):  # it died: whoever asks it finds that out
            send(worker.questions, self._function)
        return worker

    def close(self) -> None:
        """End all workers, whatever they do."""
        with self._changing:
            self._is_closed = True
        for worker in self._workers:
            worker.end_input()
        until = time.monotonic() + _END_S
        for worker in self._workers:
            worker.end(within_s=max(0.0, until - time.monotonic()))


# --- in a worker -----------------------------------------------------------------------------------------------------


def main() -> None:
    questions, answers = own_streams()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # tools that it started are ended
    given: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_take, args=(questions, given), daemon=True).start()
    function: Callable[[Any], Any] = pickle.loads(given.get())  # noqa: S301 from the process that started this one
    with contextlib.suppress(OSError):  # nobody is there any more who wants something
        while True:
            send(answers, packed(outcome_of(function, pickle.loads(given.get()))))  # noqa: S301 from there as well


def _take(questions: Any, given: queue.SimpleQueue[bytes]) -> None:
    """Pass on each message, and end this process, busy or not, when its input ends: nobody waits for it any more."""
    while (asked := receive(questions)) is not None:
        given.put(asked)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_S)
    os._exit(1)

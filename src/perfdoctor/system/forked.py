"""How do several processes work on what this one has in memory?

Forked children do: a child has the same memory without a copy, and imports nothing again. This needs Linux, a process
with one thread (a child has only the thread that forked, and locks of the others stay locked in it), PERFDOCTOR_JOBS
and cores for a second process, and memory for it. Else this process does it alone, with the same result.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeVar

from perfdoctor.system.memory import available_bytes
from perfdoctor.system.processors import JOBS, worker_count

Result = TypeVar("Result")

_PROC = Path("/proc/self")
#: So much of an answer waits for whoever takes it, and the child goes on: the most that Linux allows everybody.
_PIPE_BYTES = 1 << 20
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
#: A thread that was joined is still listed for a moment.
_ENDED_THREAD_S = 0.01
#: A pipe holds 4,096 bytes at least, and so few are never read in parts.
_TICKET_BYTES = 2
_Pause = Callable[[], contextlib.AbstractContextManager[object]]
#: What to enter while a process is forked: who shows progress ends its thread.
_pauses: list[_Pause] = []
#: In a child: pauses that only its parent leaves.
_left_to_parent: list[contextlib.ExitStack] = []


def extra_processes() -> int:
    """How many children can work beside this process now; 0 where it must do all by itself."""
    return worker_count() - 1 if sys.platform == "linux" and _has_memory() else 0


def _has_memory() -> bool:
    """Is there memory for a child? It may write to, and so copy, all that we hold."""
    try:
        held = int((_PROC / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return False
    return available_bytes() >= held


@contextlib.contextmanager
def pausing(pause: _Pause) -> Iterator[None]:
    """Within this context, processes are forked inside `pause()`, where no thread of the caller runs."""
    _pauses.append(pause)
    try:
        yield
    finally:
        _pauses.remove(pause)


# --- one child -------------------------------------------------------------------------------------------------------


class Child:
    """A forked process that runs `main(questions, answers)`, and never outlives us. OSError if none can be forked."""

    def __init__(self, main: Callable[[BinaryIO, BinaryIO], None]) -> None:
        parent = os.getpid()
        questions, asked = os.pipe()
        answered, answers = os.pipe()
        with contextlib.suppress(ImportError, OSError):
            import fcntl  # noqa: PLC0415 not on Windows

            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            self.pid = _forked()
        except OSError:
            for descriptor in (questions, asked, answered, answers):
                os.close(descriptor)
            raise
        if not self.pid:
            _run(main, questions, answers, parent=parent, foreign=(asked, answered))
        os.close(questions)
        os.close(answers)
        self.questions: BinaryIO = os.fdopen(asked, "wb")
        self.answers: BinaryIO = os.fdopen(answered, "rb")

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # who ignores SIGCHLD has waited already
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            self.pid = 0
        for stream in (self.questions, self.answers):
            with contextlib.suppress(OSError):  # what was on its way to it
                stream.close()


def _forked() -> int:
    """Like os.fork, with Ctrl-C blocked in the child. OSError where that is not safe."""
    with contextlib.ExitStack() as paused:
        for pause in _pauses:
            paused.enter_context(pause())
        if sys.platform != "linux" or not _has_one_thread():
            raise OSError("a process with several threads is not forked")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        child = -1
        try:
            child = os.fork()
        finally:
            if child:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            else:
                _left_to_parent.append(paused.pop_all())
        return child


def _has_one_thread() -> bool:
    until = time.monotonic() + _ENDED_THREAD_S
    while threading.active_count() == 1:
        with contextlib.suppress(OSError):
            if len(os.listdir(_PROC / "task")) == 1:  # noqa: PTH208 the names alone
                return True
        if time.monotonic() > until:
            return False
        time.sleep(_ENDED_THREAD_S / 10)
    return False


def _run(
    main: Callable[[BinaryIO, BinaryIO], None], questions: int, answers: int, *, parent: int, foreign: Sequence[int]
) -> NoReturn:
    """Run `main` in the child, and end with it or the parent. `foreign`: descriptors that are the parent's alone."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches all processes of a terminal: our parent acts on it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == parent:  # else it died before it could be said
            gc.freeze()  # a collection would write to, and so copy, all objects that were there before
            for descriptor in foreign:
                os.close(descriptor)
            os.environ[JOBS] = "1"  # the other cores have processes of their own
            with os.fdopen(questions, "rb") as asked, os.fdopen(answers, "wb") as answered:
                main(asked, answered)
            status = 0
    except BaseException:  # noqa: BLE001, S110 whoever waits does the work again, and sees what is wrong
        pass
    finally:
        os._exit(status)  # nothing is flushed that is our parent's


# --- several functions ------------------------------------------------------------------------------------------------


def several(functions: Sequence[Callable[[], Result]], *, most: int | None = None) -> list[Result]:
    """The result of each function, in their order. Processes take the next one when they are ready: longest first.

    A function must give the same in any process, and its result must be picklable; what it keeps stays in its process.
    Where a child failed, its functions are called here, and raise what they raise. `most`: children at most.
    """
    extra = min(extra_processes(), len(functions), len(functions) if most is None else most)
    if extra <= 0:
        return [function() for function in functions]
    with _tickets(len(functions)) as tickets, contextlib.ExitStack() as ended:

        def some() -> dict[int, Result]:
            return {number: functions[number]() for number in tickets()}

        children = []
        with contextlib.suppress(OSError):  # it cannot be forked: fewer do the work
            for _ in range(extra):
                child = Child(lambda _, answers: pickle.dump(some(), answers, protocol=pickle.HIGHEST_PROTOCOL))
                ended.callback(child.end)
                children.append(child)
        found = some()
        for child in children:
            with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):  # it raised, or was killed
                found |= pickle.load(child.answers)  # noqa: S301 our own child wrote it
    return [found[number] if number in found else function() for number, function in enumerate(functions)]


@contextlib.contextmanager
def _tickets(count: int) -> Iterator[Callable[[], Iterator[int]]]:
    """A function that yields numbers from 0 on, each in one of the processes that call it."""
    read, write = os.pipe()
    for number in range(count):
        os.write(write, number.to_bytes(_TICKET_BYTES, "little"))
    os.close(write)

    def taken() -> Iterator[int]:
        while ticket := os.read(read, _TICKET_BYTES):
            yield int.from_bytes(ticket, "little")

    try:
        yield taken
    finally:
        os.close(read)

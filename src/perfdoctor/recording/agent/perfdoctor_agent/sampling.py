"""How does a process let its Python stacks be sampled from outside while steps are recorded?

It asks perfdoctor's sampler by a line in a FIFO (recording/sampling/sampler.py), and permits that process, and no
other, to read its memory, only while it samples. Nothing in here reads a stack.

A loader's worker does the same for just as long, and cannot know by itself when that is. The training holds locks on
two bytes of a file: it releases the first one when steps begin, and the second one when they have ended. A thread in
the worker waits for them in the kernel. A worker that starts later finds no file, and permits nothing.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import json
import os
import sys
import time
from typing import Any

from perfdoctor_agent import identity

try:
    import fcntl
except ImportError:  # Windows, where nothing is sampled
    fcntl = None  # type: ignore[assignment]

_SET_PTRACER = 0x59616D61  # prctl(2): PR_SET_PTRACER; EINVAL where Yama is not there, and nothing restricted
#: The bytes of the file that workers wait for.
_BEGIN, _END = 0, 1
#: So many workers are sampled at most, as all do the same work.
_MOST_WORKERS = 2
#: py-spy is ready 20 to 60 ms after it was asked, when short steps would be over: it is awaited once, so long at most.
_READY_S, _POLL_S = 0.3, 0.002
#: The longest text of a notebook's cells, in characters. More was not written by hand.
_MOST_TEXT = 1_000_000


class Sampling:
    """Sampling of this process by perfdoctor's sampler. `settings`: None where nothing is sampled, else `sampler` (its
    pid), `requests` (the FIFO), `ready` (a folder) and `source` (is the text of lines kept?).
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.is_on = False
        self.began_unix_ns = 0
        self._window = -1  # the file that workers wait for, while it is locked

    def announce(self) -> None:
        """Let workers that start from now on wait for the recorded steps of this process."""
        if not self.settings or fcntl is None:
            return
        with contextlib.suppress(OSError):  # there is no sampler on this machine, or it is announced already
            self._window = os.open(self._window_of(os.getpid()), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.lockf(self._window, fcntl.LOCK_EX, 2, _BEGIN)

    def follow(self, training: int) -> None:
        """Permit the sampler in a worker of `training`'s loader, while that process records steps; 0 for no worker."""
        if not self.settings or fcntl is None or not training:
            return
        try:
            window = os.open(self._window_of(training), os.O_RDONLY)
        except OSError:  # its steps are recorded already
            return
        _thread.start_new_thread(_permit_in_window, (window, self.settings["sampler"]))

    def drop(self) -> None:
        """Close the window in a fork: it is the parent's, and so are its locks."""
        if self._window >= 0:
            os.close(self._window)
            self._window = -1

    def begin(self, step_ns: int, processes: int) -> None:
        """Begin in the step of warm-up. `step_ns`: of a step, 0 if unknown; `processes`: how many ask for it here."""
        if not self.settings or self.is_on:
            return
        workers = _workers()
        permit(self.settings["sampler"])
        if self._window >= 0:
            fcntl.lockf(self._window, fcntl.LOCK_UN, 1, _BEGIN)
        self.is_on = self._ask("begin", os.getpid(), processes * (1 + len(workers)), *workers)
        if not self.is_on:
            self._forbid()
        elif step_ns < _READY_S * 1e9:
            file = os.path.join(self.settings["ready"], f"ready-{os.getpid()}")
            end = time.monotonic() + _READY_S
            while time.monotonic() < end and not os.path.exists(file):
                time.sleep(_POLL_S)

    def steps_begin(self) -> None:
        self.began_unix_ns = time.time_ns()

    def end(self) -> None:
        """End the sampling, after the last recorded step."""
        if self.is_on:
            self._write_cells()
            self._ask("end", os.getpid(), self.began_unix_ns, time.time_ns())
            self.is_on = False
            self._forbid()

    def leave(self) -> None:
        """End the sampling also where no step was recorded: workers that wait for one wait no more."""
        self.end()
        self._close_window()

    def _forbid(self) -> None:
        permit(0)
        self._close_window()

    def _close_window(self) -> None:
        if self._window >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._window_of(os.getpid()))
            os.close(self._window)  # which releases its locks
            self._window = -1

    def _window_of(self, training: int) -> str:
        return os.path.join(self.settings["ready"], f"window-{training}")

    def _ask(self, *words: object) -> bool:
        """Send a request; False where nobody listens: on another machine, or the sampler has ended."""
        try:
            target = os.open(self.settings["requests"], os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            os.write(target, (" ".join(map(str, words)) + "\n").encode("ascii"))
        except OSError:
            return False
        finally:
            os.close(target)
        return True

    def _write_cells(self) -> None:
        """Write a notebook's cells beside the samples, as their code is in no file."""
        with contextlib.suppress(Exception):  # IPython keeps them as it likes, and the program goes on
            cells = _cells(bool(self.settings["source"]))
            if cells:
                with open(os.path.join(self.settings["ready"], f"cells-{os.getpid()}.json"), "x") as file:
                    json.dump(cells, file)


def _cells(with_text: bool) -> dict[str, Any]:
    """Number and text of each cell that IPython has run, by the name of its code."""
    ipython, linecache = sys.modules.get("IPython"), sys.modules.get("linecache")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or linecache is None:
        return {}
    numbers = shell.compile._filename_map
    cells = {
        name: {"number": int(number), "text": "".join(linecache.cache[name][2]) if with_text else ""}
        for name, number in list(numbers.items())
        if name in linecache.cache
    }
    return cells if sum(len(each["text"]) for each in cells.values()) <= _MOST_TEXT else {}


def permit(pid: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # no prctl: nothing to permit
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def _permit_in_window(window: int, sampler: int) -> None:
    """Permit the sampler from the release of one lock to that of the other; the training's end releases both."""
    with contextlib.suppress(Exception):
        fcntl.lockf(window, fcntl.LOCK_SH, 1, _BEGIN)
        if identity.is_worker():
            permit(sampler)
            fcntl.lockf(window, fcntl.LOCK_SH, 1, _END)
            permit(0)
    os.close(window)


def _workers() -> list[int]:
    """Some of the living loader workers, which multiprocessing started as daemons."""
    process = sys.modules.get("multiprocessing.process")
    children = [child for child in list(getattr(process, "_children", ())) if getattr(child, "daemon", False)]
    pids = sorted(child.pid for child in children if isinstance(getattr(child, "pid", None), int))
    return pids[:_MOST_WORKERS]

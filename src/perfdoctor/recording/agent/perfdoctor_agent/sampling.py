"""How does a process let its Python stacks be sampled from outside while steps are recorded?

It asks perfdoctor's sampler by a line in a FIFO (recording/sampling/sampler.py), and permits that process, and no
other, to read its memory, only while it samples. Nothing in here reads a stack.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

_SET_PTRACER = 0x59616D61  # prctl(2): PR_SET_PTRACER; EINVAL where Yama is not there, and nothing restricted
#: All workers do the same work.
_MOST_WORKERS = 2
#: py-spy is ready 20 to 60 ms after it was asked, when short steps would be over: it is awaited once, so long at most.
_READY_S, _POLL_S = 0.3, 0.002
#: Of a notebook's cells. More was not written by hand.
_MOST_TEXT = 1_000_000


class Sampling:
    """`settings`: {"sampler": its pid, "requests": the FIFO, "ready": a folder, "source": is the text of lines kept};
    None where nothing is sampled.
    """

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.is_on = False
        self.began_unix_ns = 0

    def permit_as_worker(self) -> None:
        """A loader's worker cannot know when steps are recorded: it permits the sampler until either ends."""
        if self.settings:
            _permit(self.settings["sampler"])

    def begin(self, step_ns: int, processes: int) -> None:
        """In the step of warm-up. `step_ns`: what a step takes, 0 if unknown; `processes`: how many ask for it here."""
        if not self.settings or self.is_on:
            return
        workers = _workers()
        _permit(self.settings["sampler"])
        self.is_on = self._ask("begin", os.getpid(), processes * (1 + len(workers)), *workers)
        if not self.is_on:
            _permit(0)
        elif step_ns < _READY_S * 1e9:
            self._wait_until_ready()

    def steps_begin(self) -> None:
        self.began_unix_ns = time.time_ns()

    def end(self) -> None:
        """Behind the recorded steps."""
        if self.is_on:
            self._write_cells()
            self._ask("end", os.getpid(), self.began_unix_ns, time.time_ns())
            self.is_on = False
            _permit(0)

    def _ask(self, *words: object) -> bool:
        """False where nobody listens: on another machine, or the sampler has ended."""
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
        """The code of a notebook's cells is in no file: its names, numbers and lines, beside what is sampled."""
        try:
            cells = _cells(bool(self.settings["source"]))
            if cells:
                with open(os.path.join(self.settings["ready"], f"cells-{os.getpid()}.json"), "x") as file:
                    json.dump(cells, file)
        except Exception:  # IPython keeps them as it likes, and the program goes on
            pass

    def _wait_until_ready(self) -> None:
        file = os.path.join(self.settings["ready"], f"ready-{os.getpid()}")
        end = time.monotonic() + _READY_S
        while time.monotonic() < end and not os.path.exists(file):
            time.sleep(_POLL_S)


def _cells(with_text: bool) -> dict[str, Any]:
    """By the name of its code, {"number": n, "text": …} of each cell that IPython has run."""
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


def _permit(pid: int) -> None:
    try:
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
    except (OSError, AttributeError):  # no prctl: nothing to permit
        pass


def _workers() -> list[int]:
    """Some of the living loader workers, which multiprocessing started as daemons."""
    process = sys.modules.get("multiprocessing.process")
    children = [child for child in list(getattr(process, "_children", ())) if getattr(child, "daemon", False)]
    pids = sorted(child.pid for child in children if isinstance(getattr(child, "pid", None), int))
    return pids[:_MOST_WORKERS]

"""How does a trial share its machine: when does it go on, and how long did it wait for a core?

Several trials take turns. Each hands over at the end of a step, and waits until it goes on: whoever started them
(recording/race.py) stops all processes of the one that has handed over, and lets the next one go on. Turns end with
steps whose number is a multiple of that of a turn: so all of them make the same steps. Where nobody listens any more
the program goes on by itself.

While a thread could run and no core was free for it, it was queued: Linux counts that time for each thread (schedstat
in proc(5)). On a busy machine it is most of what steps differ by.
"""

from __future__ import annotations

import os
import threading
from array import array
from typing import Any

from perfdoctor_agent import identity


class Turns:
    """The turns of this process. `settings`: `folder` with the pipes, and the `steps` of a turn; None: it has none."""

    def __init__(self, torch: Any, settings: dict[str, Any] | None) -> None:
        self.torch, self.settings = torch, settings
        self.handed: list[int] = []  # how many steps had ended when it handed over
        self._owner = 0
        self._pipes = (-1, -1)

    def step_ended(self, count: int) -> None:
        """Hand over if `count` steps are a turn, and wait."""
        if self.settings is None or count % self.settings["steps"]:
            return
        try:
            if not self._owner:
                self._begin(self.settings["folder"])
            if self._owner == os.getpid():
                self.handed.append(count)
                os.write(self._pipes[0], b".")
                if not os.read(self._pipes[1], 1):
                    self.settings = None
        except OSError:
            self.settings = None

    def _begin(self, folder: str) -> None:
        """Of all processes that train, the first one of rank 0 takes turns for all."""
        if identity.rank(self.torch)[0]:
            self.settings = None
            return
        os.close(os.open(os.path.join(folder, "owner"), os.O_CREAT | os.O_EXCL, 0o600))
        self._pipes = tuple(os.open(os.path.join(folder, name), way) for name, way in _PIPES)  # type: ignore[assignment]
        self._owner = os.getpid()


class Queued:
    """How long the training thread was queued for a core, from its begin to the end of each step, in ns."""

    def __init__(self) -> None:
        self.first = 0  # number of the first step that is known
        self.sums_ns = array("q")
        self.used_ns = 0  # processor time of that thread so far
        self._file, self._thread = -1, 0

    def step_ended(self, count: int) -> None:
        """Note what is known when `count` steps have ended; nothing more once another thread ends them."""
        try:
            if not self._thread:
                self._thread, self.first = threading.get_native_id(), count
                self._file = os.open(f"/proc/self/task/{self._thread}/schedstat", os.O_RDONLY)
            if self._file >= 0 and count == self.first + len(self.sums_ns) and len(self.sums_ns) < _MOST_STEPS:
                used, queued, _ = os.pread(self._file, 100, 0).split()
                self.used_ns = int(used)
                self.sums_ns.append(int(queued) if self._thread == threading.get_native_id() else self.sums_ns[-1])
        except (OSError, ValueError):  # the kernel does not count it
            self._file = -1

    def facts(self) -> dict[str, Any]:
        return {"first": self.first, "sums_ns": list(self.sums_ns), "used_ns": self.used_ns}


_PIPES = (("ends", os.O_WRONLY), ("turns", os.O_RDONLY))
#: As many as the lengths of steps in a report.
_MOST_STEPS = 20_000

"""How do several trials take turns on one machine? Each hands over at the end of a step, and waits until it goes on.

Whoever started them (recording/race.py) stops all processes of the one that has handed over, and lets the next one go
on. Turns end with steps whose number is a multiple of that of a turn: so all of them make the same steps. Where nobody
listens any more the program goes on by itself.

A loader's workers are stopped right here: until they are stopped from outside they would make batches in time that
nobody counts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from perfdoctor_agent import identity


class Turns:
    """The turns of this process. `settings`: `folder` with the pipes, and the `steps` of a turn; None: it has none."""

    def __init__(self, torch: Any, settings: dict[str, Any] | None) -> None:
        self.torch, self.settings = torch, settings
        self.handed: list[tuple[int, int]] = []  # how many steps had ended when it handed over, and ns until it went on
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
                self._hand_over(count)
        except OSError:
            self.settings = None

    def _hand_over(self, count: int) -> None:
        begun_ns = time.monotonic_ns()
        children = descendants(os.getpid())
        _send(children, signal.SIGSTOP)
        try:
            os.write(self._pipes[0], b".")
            if not os.read(self._pipes[1], 1):
                self.settings = None
        finally:
            _send(children, signal.SIGCONT)
            self.handed.append((count, time.monotonic_ns() - begun_ns))

    def _begin(self, folder: str) -> None:
        """Of all processes that train, the first one of rank 0 takes turns for all."""
        if identity.rank(self.torch)[0]:
            self.settings = None
            return
        os.close(os.open(os.path.join(folder, "owner"), os.O_CREAT | os.O_EXCL, 0o600))
        self._pipes = tuple(os.open(os.path.join(folder, name), way) for name, way in _PIPES)  # type: ignore[assignment]
        self._owner = os.getpid()


def descendants(pid: int) -> list[int]:
    """The process's children and theirs, nearest first."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found + [each for child in found for each in descendants(child)]


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


_PIPES = (("ends", os.O_WRONLY), ("turns", os.O_RDONLY))

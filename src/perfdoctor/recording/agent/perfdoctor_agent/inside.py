"""What is different where the program itself asked for the recording: it has begun before, and goes on without it.

Its optimizers, and perhaps a profiler, are there already. It says when the recording ends, in the middle of its life.
Processes that it forks are not recorded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private
from perfdoctor_agent.agent import Agent

agents: list[Agent] = []
_is_registered = False


class InsideAgent(Agent):
    """An agent that calls `left()` once, when nothing of it is left in the program and its report is complete.

    `settings["marked"]`: the program marks its steps, and nothing else is taken for one.
    """

    def __init__(self, torch: Any, settings: Any, left: Callable[[], None]) -> None:
        super().__init__(torch, settings)
        self._left = left
        self.is_killed = False  # by a signal that it has caught: the process ends at once
        if settings["marked"]:
            self.marks_steps = self.has_optimizer = True
            self.step_finder = self._new_step_finder()
        self.foreign.is_active = bool(private.find(torch, private.IS_ENABLED))

    def begin(self) -> None:
        begin(self)

    def at_exit(self) -> None:
        """Whoever records ends it."""

    def forked(self) -> None:
        self._left = lambda: None
        with contextlib.suppress(Exception):
            self._drop_window()
        self.behind, self.is_done = None, True

    def _ended_by(self, number: int, frame: Any) -> None:
        self.is_killed = True
        super()._ended_by(number, frame)

    def _end_open_step(self, open_ns: int) -> None:
        super()._end_open_step(open_ns)
        if self.is_done:
            self._leave()

    def _new_whole_run(self) -> None:
        """The program itself says what is recorded, and nothing is noted of the rest."""

    def _leave(self, but: str = "") -> None:
        super()._leave(but)
        if self in agents:
            agents.remove(self)
        self.is_done = True
        self.sampling.leave()
        left, self._left = self._left, lambda: None
        if os.getpid() == self.pid:
            self.report.write(ended=True)
            left()


def begin(agent: Agent) -> None:
    """Let the agent watch from now on, and leave what this process forks."""
    global _is_registered  # noqa: PLW0603 what is registered for forks stays for the life of the process
    if not _is_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
        _is_registered = True
    agents.append(agent)
    agent.watch()


def _forked() -> None:
    while agents:
        agents.pop().forked()

"""What is different where the agent comes into a program that was started without it, and is to leave nothing behind?

It begins in a thread of its own, at any moment of the program, and takes orders from `perfdoctor attach` through a
FIFO: `ends`, to report when its last steps ended; `go N`, to record behind the Nth of the steps since it could, so that
all ranks begin with the same one; and its end, which means that nobody waits any more.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from typing import Any

from perfdoctor_agent import identity, inside
from perfdoctor_agent.agent import FAILED
from perfdoctor_agent.inside import InsideAgent

#: How often is asked whether torch is imported, and whether the agent has left.
_LOOK_EVERY_S = 0.25
_NEVER = 1 << 62
_LONGEST_ORDER = 4096
#: So long its trace is awaited after it was withdrawn (recording/attaching/attachment.py).
_AWAITED_S = 5.0
#: Ends of steps that are reported: the ranks' are compared, and some hundred ms lie between the first and the last.
_MOST_ENDS = 200


class AttachedAgent(InsideAgent):
    """An agent that waits for `go`, and that may be withdrawn from another thread than the training's."""

    def __init__(self, torch: Any, settings: Any) -> None:
        self.has_left = self.is_withdrawn = False
        self.withdrawn_at = 0.0
        self.waited, self.go_at = 0, _NEVER  # steps since it could record, and behind which one it does
        self.waited_ends_ns: deque[int] = deque(maxlen=_MOST_ENDS)
        self.is_asked = False
        super().__init__(torch, settings, self._note_left)
        self.at_end: Any = None

    def begin(self) -> None:
        """Watch for steps. What is registered for forks and for the program's end goes with the agent."""
        from multiprocessing import util  # torch has imported it

        util.register_after_fork(self, AttachedAgent.forked)
        self.at_end = util.Finalize(None, self.finish, exitpriority=1000)
        inside.agents.append(self)
        self.watch()

    def withdraw(self) -> None:
        """Leave as soon as possible. Only the training's own thread can end torch.profiler, when its step ends."""
        self.is_withdrawn, self.withdrawn_at = True, time.monotonic()
        with self._lock:
            if not self.has_left and (self.window < 0 or self.is_done):
                self.finish()

    def fail(self, why: str) -> None:
        """Leave after an error in the thread that takes the orders, which cannot end torch.profiler."""
        with self._lock:
            if self.window < 0 or self.is_done:
                self.give_up(why)
                return
        self.report.note(FAILED + why)
        self.withdraw()

    def _event(self, kind: Any, found_by: str) -> None:
        if os.getpid() == self.pid:  # not in a child that os.fork made
            super()._event(kind, found_by)

    def _open(self) -> None:
        self.waited += 1
        self.waited_ends_ns.append(time.monotonic_ns())
        if self.waited == 1 or self.is_asked:
            self.is_asked = False
            self.report.write(waited=self.waited, waited_ends_ns=list(self.waited_ends_ns))
        if self.waited >= self.go_at:
            super()._open()

    def _is_last(self, now_ns: int) -> bool:
        return self.is_withdrawn or super()._is_last(now_ns)

    def _is_overdue(self, open_ns: int) -> bool:
        return self.is_withdrawn or super()._is_overdue(open_ns)

    def _end_open_step(self, open_ns: int) -> None:
        if self.is_withdrawn:
            self._end_window(keep=self.window_end.is_written_soon)
            self._leave()
        else:
            super()._end_open_step(open_ns)

    def _close(self) -> None:
        if self._is_forgotten:
            self._end_window()
            self._leave()
        else:
            super()._close()

    def _end_window(self, *, keep: bool = True) -> None:
        super()._end_window(keep=keep and not self._is_forgotten)

    @property
    def _is_forgotten(self) -> bool:
        """Does nobody wait any more for what would be written?"""
        return self.is_withdrawn and time.monotonic() > self.withdrawn_at + _AWAITED_S

    def _note_left(self) -> None:
        if self.at_end is not None:
            self.at_end.cancel()
        self.has_left = True


def attach(given: Any) -> None:
    """Be the agent of this process until it has left. Raises RuntimeError where it cannot begin."""
    orders = os.open(given["orders"], os.O_RDONLY | os.O_NONBLOCK)  # with nobody there: the end
    try:
        torch = _torch(orders)
        if torch is None:
            return
        settings = given["agent"]
        # Of another process is what was there when this one was forked: it does nothing here.
        inside.agents[:] = [each for each in inside.agents if each.pid == os.getpid()]
        if inside.agents or "PERFDOCTOR_AGENT" in os.environ:
            raise RuntimeError("another recording of perfdoctor is in this process")
        agent = AttachedAgent(torch, settings)
        if identity.is_worker():
            agent.report.write(state="worker", ended=True)
            return
        agent.begin()
        try:
            _obey(agent, orders)
        except Exception as error:
            agent.fail(f"{type(error).__name__}: {error}")
            _await_left(agent)
    finally:
        os.close(orders)


def _torch(orders: int) -> Any:
    """The program's torch, once it is imported as a whole; None if nobody waits any more."""
    while True:
        torch = sys.modules.get("torch")
        spec = getattr(torch, "__spec__", None)
        if torch is not None and not getattr(spec, "_initializing", False):
            return torch
        if _order(orders) == b"":
            return None


def _order(orders: int) -> bytes | None:
    """What was ordered meanwhile: None for nothing, b"" for the end."""
    poll = select.poll()  # `select.select` knows no file beyond the 1,024th of the program
    poll.register(orders, select.POLLIN)
    poll.poll(_LOOK_EVERY_S * 1e3)
    try:
        return os.read(orders, _LONGEST_ORDER)  # also where nobody was there from the start, which no poll reports
    except BlockingIOError:
        return None


def _obey(agent: AttachedAgent, orders: int) -> None:
    """Do what is ordered until the agent has left."""
    while not agent.has_left:
        order = _order(orders)
        if order == b"":
            agent.withdraw()
            _await_left(agent)
        for line in (order or b"").splitlines():
            word, *rest = line.split()
            if word == b"ends":
                agent.is_asked = True
            elif word == b"go":
                agent.go_at = int(rest[0])


def _await_left(agent: AttachedAgent) -> None:
    while not agent.has_left:  # the step in which it was has not ended
        time.sleep(_LOOK_EVERY_S)

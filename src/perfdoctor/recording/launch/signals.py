"""Which signals reached us, and which of them reached the program as well?

A signal that was sent to us alone is passed on to the program; one that was sent to the whole process group (Ctrl-C,
Slurm) has reached it already, and must not come twice. A *canary* tells the two apart: a child in the same group that
does nothing but tell which signals reach it.

Signals are read from a pipe that Python's own handler writes into. Blocking and fetching them would not do: a signal
goes to any thread that lets it through, and numpy and the GPU sampler have threads.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from typing import NoReturn

from perfdoctor.recording.launch import processes

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: So long a signal to the group may take to reach the canary: on a machine with more work than cores, some time.
_CANARY_S = 0.2
#: `timeout` sends to its child and then to its whole group: what comes again so soon is the same request.
_SAME_S = 0.1
#: What the canary told longer ago belongs to an earlier signal.
_STALE_S = 1.0


class Signals:
    """Hears signals between `with` and its end, in place of the handlers there were. For the main thread.

    What was ignored when we were started (`nohup`, a shell's background) stays ignored, for the program as well.
    """

    def __init__(self) -> None:
        self.numbers = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
        self.canary = 0
        self._told = -1
        self._last: dict[int, float] = dict.fromkeys(self.numbers, float("-inf"))
        self._sung: dict[int, float] = dict(self._last)

    def __enter__(self) -> Signals:  # noqa: PYI034 Self is younger than our oldest Python
        self._woken, self._waking = os.pipe()
        for end in (self._woken, self._waking):
            os.set_blocking(end, False)
        self._old_wakeup = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        # SIGCHLD too: it wakes us when a child ends. Ignored, it would hide how the child ended.
        self._old = {number: signal.signal(number, _nothing) for number in (*self.numbers, signal.SIGCHLD)}
        self._set_canary()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_canary()
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._old_wakeup)
        os.close(self._woken)
        os.close(self._waking)

    def wait(self, seconds: float, *others: int) -> list[tuple[int, bool]]:
        """(signal, has it reached the whole group?) as they come; none when a child ended or another pipe is ready."""
        _ready((self._woken, *others), seconds)
        try:
            came = os.read(self._woken, 4096)
        except BlockingIOError:
            return []
        now = time.monotonic()
        return [(number, self._reached_all(number, now)) for number in came if self._is_new(number, now)]

    def _is_new(self, number: int, now: float) -> bool:
        if number not in self._last or now - self._last[number] < _SAME_S:
            return False
        self._last[number] = now
        return True

    def _reached_all(self, number: int, now: float) -> bool:
        deadline = time.monotonic() + _CANARY_S
        while self.canary:
            left = deadline - time.monotonic()
            if _ready((self._told,), max(left, 0)):
                self._listen_to_canary()
            if self._sung[number] > now - _STALE_S:
                self._sung[number] = float("-inf")
                return True
            if left <= 0:
                return False
        return False

    # --- the canary ---

    def _set_canary(self) -> None:
        if not self.numbers:
            return
        self._told, telling = os.pipe()
        parent = os.getpid()
        # All blocked until it waits for them: none of our handlers may run in it.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.canary = os.fork()
            if self.canary == 0:
                _sing(self.numbers, telling, parent)
        except OSError:  # no process to be had: what we hear is then passed on, at worst a second time
            os.close(self._told)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
            os.close(telling)

    def _listen_to_canary(self) -> None:
        told = os.read(self._told, 4096)
        self._sung |= dict.fromkeys(list(told), time.monotonic())
        if not told:  # somebody ended it
            self._end_canary()
            self._set_canary()

    def _end_canary(self) -> None:
        if self.canary:
            processes.send([self.canary], signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.canary, 0)
            os.close(self._told)
            self.canary = 0


def _nothing(*_: object) -> None:
    """A handler must be there for the wake-up pipe to be written to."""


def _ready(pipes: Sequence[int], seconds: float) -> bool:
    poll = select.poll()  # select() knows no descriptor above 1023
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _sing(numbers: Sequence[int], pipe: int, parent: int) -> NoReturn:
    try:
        processes.end_with_parent()
        while os.getppid() == parent:
            os.write(pipe, bytes([signal.sigwait(numbers)]))
    finally:
        os._exit(0)

"""Which signals reached us, and which of them reached the program as well?

A signal that was sent to us alone is passed on to the program; one that was sent to the whole process group (Ctrl-C,
Slurm) has reached the program already, and must not reach it twice. A *canary* distinguishes them: a child in the same
group that only reports which signals reach it.

Signals are read from a pipe into which Python's own handler writes. Blocking and fetching them would not work: a signal
goes to any thread that does not block it, and numpy and the GPU sampler have threads.
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

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: All that batch systems send ahead of a job's end (`#SBATCH --signal`), and programs each other; not those by which
#: the kernel says what a process itself has done.
PASSED_ON = (
    *ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGXCPU,
    *(getattr(signal, name) for name in ("SIGIO", "SIGPWR") if hasattr(signal, name)),  # of Linux
    *(range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if hasattr(signal, "SIGRTMIN") else ()),
)  # fmt: skip
#: How long a signal to the group may take to reach the canary on a busy machine.
_CANARY_S = 0.2
#: `timeout` sends to its child and then to its whole group: a repetition within this time is the same request.
_SAME_S = 0.1
#: Older reports of the canary belong to an earlier signal.
_STALE_S = 1.0


class Signals:
    """Receives signals within its `with` block, in place of the previous handlers. For the main thread.

    Signals that were ignored when we were started (`nohup`, a shell's background) stay ignored, also for the program.
    """

    def __init__(self) -> None:
        self.numbers = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
        self.canary = 0
        self._canary_pipe = -1
        self._last: dict[int, float] = dict.fromkeys(self.numbers, float("-inf"))
        self._canary_saw: dict[int, float] = dict(self._last)

    def __enter__(self) -> Signals:  # noqa: PYI034 Self is younger than our oldest Python
        self._woken, self._waking = os.pipe()
        for end in (self._woken, self._waking):
            os.set_blocking(end, False)
        self._old_wakeup = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        # SIGCHLD too: it wakes us when a child ends. If it were ignored, the child's exit status would be lost.
        # Python writes to the wake-up pipe only for signals with a handler.
        self._old = {number: signal.signal(number, lambda *_: None) for number in (*self.numbers, signal.SIGCHLD)}
        self._start_canary()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_canary()
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._old_wakeup)
        os.close(self._woken)
        os.close(self._waking)

    def wait(self, seconds: float, *others: int) -> list[tuple[int, bool]]:
        """(signal, has it reached the whole group?) in order; none when a child ended or another pipe is ready."""
        _ready((self._woken, *others), seconds)
        try:
            came = os.read(self._woken, 4096)
        except BlockingIOError:
            return []
        now = time.monotonic()
        found = []
        for number in came:
            if number in self._last and now - self._last[number] >= _SAME_S:
                self._last[number] = now
                found.append((number, self._reached_all(number, now)))
        return found

    def _reached_all(self, number: int, now: float) -> bool:
        deadline = time.monotonic() + _CANARY_S
        while self.canary:
            left = deadline - time.monotonic()
            if _ready((self._canary_pipe,), max(left, 0)):
                numbers = os.read(self._canary_pipe, 4096)
                self._canary_saw |= dict.fromkeys(list(numbers), time.monotonic())
                if not numbers:  # it was killed
                    self._end_canary()
                    self._start_canary()
            if self._canary_saw[number] > now - _STALE_S:
                self._canary_saw[number] = float("-inf")
                return True
            if left <= 0:
                return False
        return False

    # --- the canary ---

    def _start_canary(self) -> None:
        if not self.numbers:
            return
        self._canary_pipe, writing = os.pipe()
        parent = os.getpid()
        # All are blocked until the canary waits for them: none of our handlers may run in it.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.canary = os.fork()
            if self.canary == 0:
                _report_signals(self.numbers, writing, parent)
        except OSError:  # without a canary each signal is passed on, at worst a second time
            os.close(self._canary_pipe)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
            os.close(writing)

    def _end_canary(self) -> None:
        if self.canary:
            processes.send([self.canary], signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.canary, 0)
            os.close(self._canary_pipe)
            self.canary = 0


def _ready(pipes: Sequence[int], seconds: float) -> bool:
    poll = select.poll()  # select() supports no descriptor above 1023
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _report_signals(numbers: Sequence[int], pipe: int, parent: int) -> NoReturn:
    try:
        processes.end_with_parent()
        while os.getppid() == parent:
            os.write(pipe, bytes([signal.sigwait(numbers)]))
    finally:
        os._exit(0)

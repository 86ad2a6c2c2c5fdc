"""How does the user's program run so that it cannot tell that we started it?

It inherits our input, output and error as they are: what it prints never passes through us, a terminal stays one,
and if we are killed it goes on. It stays in our process group, so that the terminal's keys reach it as ever. A tool
around it (nsys, ncu) gets a process group and a log of its own; `enter.py` brings the program back into ours.

Signals reach the training first. One that was sent to us alone is passed on to the program; one that was sent to the
whole group (Ctrl-C, `timeout`, Slurm) has reached it already, and must not come twice: a *canary*, a child that does
nothing but wait for signals, tells the two apart.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfdoctor.capture import processes
from perfdoctor.errors import PerfdoctorError

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # what shells, env and timeout answer
#: After the program has ended, its children get this long to end by themselves, and again after SIGTERM.
LEFTOVER_GRACE_S = 5.0
#: A program that was asked to end (a time limit, all steps recorded) gets this long before it is killed.
ENDING_GRACE_S = 20.0
#: A tool that uses no CPU for so long after the program has ended hangs. Importing a report is hard work.
TOOL_IDLE_S = 60.0
_POLL_S = 0.1
_CANARY_S = 0.05
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Python itself ignores these; a program that it starts must not inherit that.
_DEFAULT_AGAIN = (signal.SIGPIPE, signal.SIGXFSZ)
_ENTER = Path(__file__).with_name("enter.py")


@dataclass(frozen=True)
class Tool:
    """A profiler around the program: `arguments(program)` is its whole command line; what it prints goes to `log`."""

    arguments: Callable[[Sequence[str]], Sequence[str]]
    log: Path


@dataclass
class Ended:
    """How it ended. `code` as a shell tells it: 128 + n for signal n."""

    code: int = 0
    seconds: float = 0.0
    interrupted_by: int = 0
    at_once: bool = False
    notes: list[str] = field(default_factory=list)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    tool: Tool | None = None,
    time_limit_s: float | None = None,
    is_finished: Callable[[], bool] = lambda: False,
    overdue: Callable[[], Sequence[int]] = tuple,
) -> Ended:
    """Run a program to its end, and end whatever it leaves behind.

    `is_finished` tells that the program may be ended, since all was recorded. `overdue` names processes that should
    have ended on SIGTERM by now. PerfdoctorError where the program or the tool cannot be started.
    """
    if sys.platform != "linux":
        raise PerfdoctorError(
            "recording needs Linux", do="Record where the training runs, and analyse here: perfdoctor analyze FOLDER"
        )
    return _Launch(command, environment, tool, time_limit_s, is_finished, overdue).to_the_end()


class _Launch:
    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        tool: Tool | None,
        time_limit_s: float | None,
        is_finished: Callable[[], bool],
        overdue: Callable[[], Sequence[int]],
    ) -> None:
        self.command, self.environment, self.tool = list(command), dict(environment), tool
        self.is_finished, self.overdue = is_finished, overdue
        self.ended = Ended()
        self.begun = time.monotonic()
        self.deadline = self.begun + time_limit_s if time_limit_s else float("inf")
        self.kill_at = float("inf")
        self.overdue_at = float("inf")
        self.heard = [number for number in _PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
        self.canary = 0
        self.child = 0
        self.program = 0  # the pid of the user's program; the child itself, unless a tool stands between
        self.status: int | None = None  # of the child
        self.program_status: int | None = None  # of the program, where it outlived its tool and became our child

    # --- start ---

    def to_the_end(self) -> Ended:
        processes.adopt_orphans()
        old_mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, {*self.heard, signal.SIGCHLD}))
        try:
            self._set_canary()
            self._start(old_mask)
            self._wait()
            self._clean_up()
        finally:
            self._end_canary()
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        self.ended.seconds = time.monotonic() - self.begun
        return self.ended

    def _start(self, mask: set[int | signal.Signals]) -> None:
        program = self.command if self.tool is None else [sys.executable, *self._entering(), *self.command]
        arguments = program if self.tool is None else list(self.tool.arguments(program))
        options: dict[str, object] = {"setsigmask": mask, "setsigdef": _DEFAULT_AGAIN}
        with contextlib.ExitStack() as stack:
            if self.tool is not None:
                options |= self._apart(stack)
            try:
                child = os.posix_spawnp(arguments[0], arguments, self.environment, **options)  # type: ignore[arg-type]
            except OSError as error:
                raise _not_started(arguments[0], error) from error
        self.child = child
        self.program = self.child if self.tool is None else self._told_pid()

    def _entering(self) -> list[str]:
        """`enter.py` and what it needs: our process group, and where our own descriptors are kept for the program."""
        self.pid_pipe = os.pipe()
        self.kept = [_free_copy(number) for number in (1, 2)]
        os.set_inheritable(self.pid_pipe[1], True)
        told = [os.getpgrp(), _umask(), self.pid_pipe[1], *self.kept]
        return ["-I", "-S", str(_ENTER), *map(str, told)]

    def _apart(self, stack: contextlib.ExitStack) -> dict[str, object]:
        """The tool's own process group; its output into its log."""
        assert self.tool is not None
        log = os.open(self.tool.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number in (log, self.pid_pipe[1], *(kept for kept in self.kept if kept >= 0)):
            stack.callback(os.close, number)
        actions = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        return {"setpgroup": 0, "file_actions": actions}

    def _told_pid(self) -> int:
        """The program's pid, from `enter.py`; the tool's own where that never came so far."""
        reading = self.pid_pipe[0]
        try:
            while not select.select([reading], [], [], _POLL_S)[0]:
                if not processes.is_alive(self.child):
                    return self.child
            told = os.read(reading, 32).strip()
        finally:
            os.close(reading)
        return int(told) if told.isdigit() else self.child

    # --- wait ---

    def _wait(self) -> None:
        while self.status is None or self._outlives_tool():
            heard = signal.sigtimedwait({*self.heard, signal.SIGCHLD}, _POLL_S)
            if heard is not None and heard.si_signo != signal.SIGCHLD:
                self._hear(heard.si_signo)
            self._look_after_children()
            if self.status is None or self._outlives_tool():
                self._look_at_clock()
                if self.tool is not None and not processes.is_alive(self.program):
                    self._wait_for_tool()
        self.ended.code = _shell_code(self.status if self.program_status is None else self.program_status)

    def _outlives_tool(self) -> bool:
        """A profiler that dies must not take the training with it."""
        return self.program != self.child and processes.is_alive(self.program)

    def _look_after_children(self) -> None:
        for pid, status in processes.reap():
            if pid == self.child:
                self.status = status
            elif pid == self.canary:
                self.canary = 0
            elif pid == self.program:
                self.program_status = status

    def _hear(self, number: int) -> None:
        reached_all = self._canary_heard()
        if number in _ENDING:
            if self.ended.interrupted_by:
                self._end_at_once()
                return
            self.ended.interrupted_by = number
            self.overdue_at = time.monotonic() + ENDING_GRACE_S / 2
        if not reached_all:
            processes.send([self.program], number)

    def _end_at_once(self) -> None:
        """Asked a second time: nothing is waited for, and nothing is diagnosed."""
        self.ended.at_once = True
        processes.send(self._tree(), signal.SIGKILL)

    def _tree(self) -> list[int]:
        return [pid for pid in processes.descendants(os.getpid()) if pid != self.canary]

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        if now >= self.kill_at:
            processes.send(self._tree() if self.tool is None else self._of_program(), signal.SIGKILL)
            self.kill_at = float("inf")
        elif now >= self.deadline:
            self.ended.notes.append("the time limit was reached: the program was ended")
            self._ask_to_end(now)
        elif self.kill_at == float("inf") and self.is_finished():
            self._ask_to_end(now)
        if now >= self.overdue_at:
            processes.send(self.overdue(), signal.SIGKILL)
            self.overdue_at = float("inf")

    def _ask_to_end(self, now: float) -> None:
        self.deadline, self.kill_at = float("inf"), now + ENDING_GRACE_S
        self.is_finished = lambda: False
        processes.send([self.program], signal.SIGTERM)

    def _of_program(self) -> list[int]:
        return [self.program, *processes.descendants(self.program)]

    def _wait_for_tool(self) -> None:
        """The program has ended, the tool writes its report: as long as it works, but not for ever."""
        worked, since = -1.0, time.monotonic()
        while self.status is None:
            heard = signal.sigtimedwait({*self.heard, signal.SIGCHLD}, _POLL_S)
            if heard is not None and heard.si_signo in _ENDING:
                self._end_at_once()
            self._look_after_children()
            now_worked = processes.cpu_seconds([self.child, *processes.descendants(self.child)])
            if now_worked > worked:
                worked, since = now_worked, time.monotonic()
            elif time.monotonic() - since > TOOL_IDLE_S:
                self.ended.notes.append(f"the profiler did nothing for {TOOL_IDLE_S:.0f} s after the program's end")
                processes.end_all([self.child, *processes.descendants(self.child)], LEFTOVER_GRACE_S)
                since = time.monotonic()

    # --- end ---

    def _clean_up(self) -> None:
        """Nothing that the program started outlives it: what does not end by itself is ended."""
        deadline = time.monotonic() + (0 if self.ended.at_once else LEFTOVER_GRACE_S)
        while (left := self._tree()) and time.monotonic() < deadline:
            signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)
            self._look_after_children()
        if left:
            names = ", ".join(sorted({processes.name_of(pid) or "?" for pid in left}))
            if not self.ended.at_once:
                self.ended.notes.append(f"still running after the program had ended, and ended by perfdoctor: {names}")
        while left:
            processes.end_all(left, 0 if self.ended.at_once else LEFTOVER_GRACE_S)
            self._look_after_children()
            left = self._tree()

    # --- the canary ---

    def _set_canary(self) -> None:
        self.canary = os.fork()
        if self.canary == 0:
            processes.end_with_parent()
            signal.sigwait(set(self.heard) or {signal.SIGTERM})
            os._exit(0)

    def _canary_heard(self) -> bool:
        """Has the signal that we heard reached the canary too? A new one is set for the next."""
        deadline = time.monotonic() + _CANARY_S
        while self.canary and time.monotonic() < deadline:
            time.sleep(0.002)
            self._look_after_children()
        if self.canary:
            return False
        self._set_canary()
        return True

    def _end_canary(self) -> None:
        if self.canary:
            processes.send([self.canary], signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.canary, 0)
            self.canary = 0


def _shell_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _free_copy(number: int) -> int:
    """A copy of a descriptor that the program's side finds again; -1 where ours is closed."""
    try:
        copy = os.dup(number)
    except OSError:
        return -1
    os.set_inheritable(copy, True)
    return copy


def _not_started(name: str, error: OSError) -> PerfdoctorError:
    return PerfdoctorError(f"`{name}` did not start: {error.strerror}", do="Does it start without perfdoctor?")


def is_startable(name: str) -> bool:
    return shutil.which(name) is not None


def not_startable(name: str) -> str:
    """Why a command cannot be started, and what to do."""
    what = "may not be executed" if Path(name).exists() else "was not found"
    return f"the command `{name}` {what}\n  → Is it spelled as in your shell? Aliases and functions are not seen."


def exit_code_of(name: str) -> int:
    """What a shell answers for a command that cannot be started."""
    return NOT_EXECUTABLE if Path(name).exists() else NOT_FOUND

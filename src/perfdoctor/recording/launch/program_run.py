"""How does the user's program run exactly as without perfdoctor?

It inherits our input, output and error as they are: its output never passes through us, a terminal stays a terminal,
and if we are killed the program goes on. It stays in our process group, so that the terminal's keys reach it as usual.
A tool around it (nsys, ncu) gets a process group and a log of its own; `child_entry.py` brings the program back into
our group, or lets us start it.

Signals reach the training first: `signals.py` knows which of them have reached it already. After a first one we wait
for the program; a second one ends everything at once. A tool that does not start, or dies, never ends the training.

The module is long because it is one state machine: program, tool, clock and signals meet in `_turn`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.launch import processes
from perfdoctor.recording.launch.child_watch import ChildWatch, Entry, is_inherited
from perfdoctor.recording.launch.held_by_nsys import HeldByNsys
from perfdoctor.recording.launch.program import NOT_EXECUTABLE, NOT_FOUND
from perfdoctor.recording.launch.signals import ENDING, Signals

#: After the program has ended, its children get this long to end by themselves, and again after SIGTERM.
LEFTOVER_GRACE_S = 5.0
#: A program that was sent SIGTERM (time limit, all steps recorded) is killed after this time.
ENDING_GRACE_S = 20.0
#: A tool that uses no CPU for so long, before it has started the program or after that has ended, hangs: it takes some
#: to load itself, and to import a report.
TOOL_IDLE_S = 60.0
#: A process that has not ended so long after SIGKILL will not end.
_KILLING_S = 10.0
_POLL_S = 0.1
#: Walking through all processes takes some milliseconds.
_CHECK_EVERY_S = 0.5
#: Python itself ignores these; a program that it starts must not inherit that.
_DEFAULT_AGAIN = (signal.SIGPIPE, signal.SIGXFSZ)
_NEVER = float("inf")


class ProfilerCommand(Struct, frozen=True):
    """A profiler around the program: `arguments(program)` is its whole command line; what it prints goes to `log`.

    `otherwise`: a command line that asks for less, for a profiler that ended before it had started the program.
    """

    arguments: Callable[[Sequence[str]], Sequence[str]]
    log: Path
    otherwise: Callable[[Sequence[str]], Sequence[str]] | None = None


class Ended(Struct):
    """How the program ended. `code` as in a shell: 128 + n for signal n; `signal` is n where that ended it.

    `timed_out`: the time limit was reached. `was_started`: it could be started at all. `alone`: the profiler around it
    failed first, and it ran without.
    """

    code: int = 0
    signal: int = 0
    timed_out: bool = False
    was_started: bool = True
    alone: bool = False
    seconds: float = 0.0
    interrupted_by: int = 0
    at_once: bool = False
    notes: list[str] = field(default_factory=list)


def run(
    command: Sequence[str], environment: Mapping[str, str], *, tool: ProfilerCommand | None = None,
    time_limit_s: float | None = None, is_finished: Callable[[], bool] = lambda: False,
    overdue: Callable[[], Sequence[int]] = tuple, started: Callable[[int], None] = lambda _: None,
) -> Ended:  # fmt: skip
    """Run a program to its end, and end what it leaves behind, but for processes in sessions of their own (daemons).

    `is_finished`: may the program be ended, because all was recorded? `overdue`: processes that should have ended on
    SIGTERM by now. `started` gets the program's pid. A program that cannot be started gives a shell's exit code and a
    note; if the tool cannot, the program runs alone. For the main thread. PerfdoctorError where this is not Linux.
    """
    if sys.platform != "linux":
        raise PerfdoctorError(
            "recording needs Linux", do="Record where the training runs, and analyse here: perfdoctor analyze FOLDER"
        )
    return _Launch(command, environment, tool, time_limit_s, is_finished, overdue, started).to_the_end()


def take_over(command: Sequence[str]) -> NoReturn:
    """Become the program: what is left where not even a process can be started for it. Raises OSError."""
    for number in _DEFAULT_AGAIN:
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(command[0], list(command), _as_given(os.environ))  # noqa: S606


class _Launch:
    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], tool: ProfilerCommand | None,
        time_limit_s: float | None, is_finished: Callable[[], bool], overdue: Callable[[], Sequence[int]],
        started: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.command, self.environment, self.tool = list(command), _as_given(environment), tool
        self.is_finished, self.overdue, self.started = is_finished, overdue, started
        self.ended = Ended()
        self.begun = time.monotonic()
        self.deadline = self.begun + time_limit_s if time_limit_s else _NEVER
        self.kill_at = self.overdue_at = _NEVER
        self.signals = Signals()
        self.earlier_children: list[int] = []  # children of this process from before its exec
        self.program = 0  # 0: not started yet
        self.code: int | None = None  # of the program, where it is our child or was not started
        self.early: list[int] = []  # signals that came before the program was started
        self.is_to_end = False  # its end was requested, or that of all processes
        self.ends_all = False  # the program did not end by itself
        self.held = HeldByNsys()
        self.child_watch: ChildWatch | None = None  # until the program is started
        self.tool_pid = 0
        self.tool_status: int | None = None
        self.of_tool: set[int] = set()
        self.tool_worked, self.tool_worked_at, self.tool_checked_at = -1.0, self.begun, self.begun
        self.left: set[int] = set()  # processes of the program when it had ended

    def to_the_end(self) -> Ended:
        processes.adopt_orphans()
        self.earlier_children = processes.descendants(os.getpid())
        with self.signals:
            if self.tool is None:
                self._start_program(self.environment)
            else:
                self._start_with(self.tool)
            while not self._has_ended():
                self._turn()
                self._check_clock()
            self._reap_children()
            self.left = set(self._of_program())
            self._wait_for_tool()
            self._clean_up()
        self._leave_child_watch()
        self.ended.code = self._code()
        self.ended.seconds = time.monotonic() - self.begun
        return self.ended

    def _code(self) -> int:
        """The program's exit code, else the tool's."""
        if self.code is not None:
            return self.code
        if self.tool_status is None or self.ended.at_once or not self.program:
            return 128 + (self.ended.interrupted_by or signal.SIGTERM)
        return _shell_code(self.tool_status)

    # --- start ---

    def _start_with(self, tool: ProfilerCommand) -> None:
        """Start the tool; the program alone where it cannot be started."""
        try:
            self._start_tool(tool)
        except OSError as error:
            self._start_alone(f"did not start: {error.strerror}")

    def _start_tool(self, tool: ProfilerCommand) -> None:
        """Start it in a process group of its own, with its output in its log."""
        self.child_watch = ChildWatch()
        arguments = list(tool.arguments([*self.child_watch.words(), *self.command]))
        with contextlib.ExitStack() as stack:
            stack.callback(self.child_watch.close_passed)
            log = os.open(tool.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            stack.callback(os.close, log)
            actions = [(os.POSIX_SPAWN_DUP2, log, number) for number in (1, 2)]
            options = {"setpgroup": 0, "file_actions": actions, "setsigdef": _DEFAULT_AGAIN}
            self.tool_pid = os.posix_spawnp(arguments[0], arguments, self.environment, **options)  # type: ignore[arg-type]
        self.of_tool.add(self.tool_pid)

    def _start_program(self, environment: Mapping[str, str] | Mapping[bytes, bytes]) -> None:
        try:
            self.program = _spawn(self.command, environment)
        except OSError as error:
            self.ended.notes.append(f"`{self.command[0]}` did not start: {error.strerror}")
            self.ended.was_started = False
            self.code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        else:
            self.started(self.program)

    def _start_otherwise(self, why: str) -> None:
        """Start the tool once more with its other command line; the program alone where it has none."""
        if self.tool is None or self.tool.otherwise is None:
            self._start_alone(why)
            return
        self._leave_child_watch()
        self.ended.notes.append(f"the profiler {why}: it was started again and asked for less")
        self.tool, self.tool_status = ProfilerCommand(self.tool.otherwise, self.tool.log), None
        self._start_with(self.tool)

    def _start_alone(self, why: str) -> None:
        self._leave_child_watch()
        self.ended.alone = True
        self.ended.notes.append(f"the profiler {why}: the program ran without it")
        self._start_program(self.environment)

    def _check_entry(self, watch: ChildWatch) -> None:
        """Has the tool started the program, or ended before?"""
        entry = watch.read()
        if entry is not None:
            self.of_tool |= set(self._tree())
            if not self.is_to_end:
                self._enter(entry)
            if self.program:
                watch.answer(self.program)
            self._leave_child_watch()
        elif self.tool_status is not None and not self.is_to_end:
            self.of_tool |= set(self._tree())  # nsys may leave an agent, in a session of its own
            self._start_otherwise(f"ended with code {_shell_code(self.tool_status)} before it had started the program")
        if self.program:
            for number in self.early:
                processes.send([self.program], number)

    def _enter(self, entry: Entry) -> None:
        """Start the program with the tool's environment, or take the process that becomes it."""
        if entry.environment:
            self._start_program(entry.environment)
        else:
            self.program = entry.pid
            self.of_tool.discard(entry.pid)
            self.started(self.program)

    def _leave_child_watch(self) -> None:
        if self.child_watch is not None:
            self.child_watch.close()
            self.child_watch = None

    # --- wait ---

    def _has_ended(self) -> bool:
        """Has the program ended; or the tool, before it started the program?"""
        if self.program:
            return self.code is not None or not processes.is_alive(self.program)
        return self.code is not None or (self.tool_status is not None and self.is_to_end)

    def _turn(self) -> None:
        """Wait briefly for an event, and handle it: a signal, a child that ends, the program's start."""
        pipes = [self.child_watch.reading] if self.child_watch and not self.child_watch.is_over else []
        for number, has_reached_all in self.signals.wait(_POLL_S, *pipes):
            self._handle_signal(number, has_reached_all)
        self._reap_children()
        if self.child_watch is not None:
            self._check_entry(self.child_watch)

    def _reap_children(self) -> None:
        for pid, status in processes.reap():
            if pid == self.tool_pid:
                self.tool_status = status
            elif pid == self.program:
                self.code = _shell_code(status)
                self.ended.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def _handle_signal(self, number: int, has_reached_all: bool) -> None:
        if number in ENDING and not self._is_first(number):  # wait for nothing, and diagnose nothing
            self.ends_all |= not self._has_ended()
            self.ended.at_once = self.is_to_end = True
            self.ended.interrupted_by = self.ended.interrupted_by or number
            processes.send(self._to_end(), signal.SIGKILL)
        elif not self.program:
            self.early.append(number)
        elif not has_reached_all and not self._has_ended():
            processes.send([self.program], number)

    def _is_first(self, number: int) -> bool:
        """Is the signal left to the program? Not a second one, and none after the program's end."""
        if self.ended.interrupted_by or (self.program and self._has_ended()):
            return False
        self.ended.interrupted_by = number
        if not self.program:
            self._request_end()
        if number == signal.SIGTERM:  # the program may take its time to handle others
            self.overdue_at = time.monotonic() + ENDING_GRACE_S
        return True

    def _check_clock(self) -> None:
        now = time.monotonic()
        if now >= self.kill_at:
            self.kill_at = _NEVER
            processes.send(self._of_program() if self.program else self._tree(), signal.SIGKILL)
        elif now >= self.deadline:
            self.ended.notes.append("the time limit was reached: the program was ended")
            self.ended.timed_out = True
            self._request_end()
        elif not self.is_to_end and self.is_finished():
            self._request_end()
        if self.child_watch is not None and self.tool_status is None and not self.is_to_end and self._tool_hangs(now):
            self.ended.notes.append(f"the profiler did nothing for {TOOL_IDLE_S:.0f} s: it was ended")
            processes.send(self._tree(), signal.SIGKILL)  # and the program is started when the tool has ended
        if self.tool_pid and self.program and (woken := self.held.wake([self.program])):
            self.ended.notes.append(
                f"{_names(woken)} had closed descriptors of nsys, whose library then kept it from ending: it was woken"
            )
        if now >= self.overdue_at:
            self.overdue_at = _NEVER
            # A report may be of another machine's process, or of one that has ended, whose number is now another's.
            own = set(self._tree())
            processes.send([pid for pid in self.overdue() if pid in own], signal.SIGKILL)

    def _request_end(self) -> None:
        """Request the end of the program; before it is started, of the tool, and then it is not started any more."""
        self.is_to_end = self.ends_all = True
        self.deadline, self.kill_at = _NEVER, time.monotonic() + ENDING_GRACE_S
        processes.send([self.program or self.tool_pid], signal.SIGTERM)

    # --- which processes belong to the program, and which to the tool? ---

    def _tree(self) -> list[int]:
        """All living processes that this run started."""
        return processes.descendants(os.getpid(), but={*self.earlier_children, self.signals.canary})

    def _of_tool(self) -> set[int]:
        """The tool and its descendants that were seen, some of them already ended."""
        self.of_tool |= set(processes.descendants(*self.of_tool, but={self.program}))
        return self.of_tool

    def _of_program(self) -> list[int]:
        tool = self._of_tool()
        return [pid for pid in self._tree() if pid not in tool]

    def _left_behind(self) -> list[int]:
        """Processes that remained when the program had ended, and their descendants: others are daemons of the tool."""
        self.left |= set(processes.descendants(*self.left))
        return [pid for pid in self._tree() if pid in self.left or not self.tool_pid]

    def _to_end(self) -> list[int]:
        """All that this run started, without what lives on as it would without us.

        A program that ends by itself may leave a process in a session of its own (`setsid`): a daemon. One that we end
        may not, as torchrun's workers have sessions of their own too.
        """
        if self.ends_all or not self._has_ended():
            return self._tree()
        here = os.getsid(0)
        free = {pid for pid in self._left_behind() if processes.session_of(pid) not in (here, None)}
        return [pid for pid in self._tree() if pid not in free]

    # --- end ---

    def _wait_for_tool(self) -> None:
        """After the program's end, wait while the tool writes its report, as long as it uses CPU time."""
        self.tool_worked_at = time.monotonic()
        while self.tool_pid and self.tool_status is None:
            self._turn()
            if self._tool_hangs(time.monotonic()):
                lost = "" if self.code is not None else ", and with it the program's exit code was lost"
                self.ended.notes.append(
                    f"the profiler did nothing for {TOOL_IDLE_S:.0f} s after the program's end: it was ended{lost}"
                )
                self._end(lambda: [pid for pid in self._tree() if pid in self._of_tool()])
                return

    def _tool_hangs(self, now: float) -> bool:
        """Has the tool, with all its processes, used no CPU time for too long, and not wanted any?"""
        if now - self.tool_checked_at < _CHECK_EVERY_S:
            return False
        self.tool_checked_at = now
        tool = self._of_tool()
        worked = processes.cpu_seconds(tool)  # it decreases where one of its processes has ended
        if worked != self.tool_worked or processes.any_runnable(tool):
            self.tool_worked, self.tool_worked_at = worked, now
        return now - self.tool_worked_at > TOOL_IDLE_S

    def _clean_up(self) -> None:
        """End every process that the program left behind and that does not end by itself."""
        deadline = time.monotonic() + LEFTOVER_GRACE_S
        while self._to_end() and not self.ended.at_once and time.monotonic() < deadline:
            self._turn()
        ours = set(self._to_end())
        names = _names([pid for pid in self._left_behind() if pid in ours])
        if names and not self.ended.at_once:
            self.ended.notes.append(f"still running after the program had ended, so perfdoctor ended them: {names}")
        self._end(self._to_end)

    def _end(self, find: Callable[[], list[int]]) -> None:
        """Send SIGTERM, and SIGKILL after the grace time, also to processes that were started meanwhile."""
        notified: set[int] = set()
        deadline = time.monotonic() + LEFTOVER_GRACE_S
        while left := find():
            now = time.monotonic()
            if now > deadline + _KILLING_S:  # another user's, or blocked in the kernel
                self.ended.notes.append(f"could not be ended: {_names(left)}")
                return
            if self.ended.at_once or now >= deadline:
                processes.send(left, signal.SIGKILL)
            else:
                new = [pid for pid in left if pid not in notified]
                processes.send(new, signal.SIGTERM)
                processes.send(new, signal.SIGCONT)  # a stopped process does not handle SIGTERM
                notified |= set(new)
            self._turn()


def _names(pids: Sequence[int]) -> str:
    """The names of those of these processes that have not ended meanwhile."""
    return ", ".join(sorted({name for pid in pids if (name := processes.name_of(pid))}))


def _shell_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _spawn(command: list[str], environment: Mapping[str, str] | Mapping[bytes, bytes]) -> int:
    """Start the command with our descriptors and process group; a script without "#!" as shells do. Returns its pid.

    A tool's library that is loaded into it opens descriptors before the program does. Where one of the three standard
    ones is closed, the library would get it, and what the program prints: there is nothing (/dev/null) instead.
    """
    loaded = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}.get(b"LD_PRELOAD")
    has_library = loaded != os.environb.get(b"LD_PRELOAD")
    closed = [number for number in range(3) if has_library and not is_inherited(number)]
    options: dict[str, Any] = {"setsigdef": _DEFAULT_AGAIN}
    options["file_actions"] = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in closed]
    try:
        return os.posix_spawnp(command[0], command, environment, **options)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        script = shutil.which(command[0]) or command[0]
        return os.posix_spawn("/bin/sh", ["/bin/sh", script, *command[1:]], environment, **options)


def _as_given(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the LC_CTYPE that Python adds where the locale is C."""
    name, given = "LC_CTYPE", b""
    with contextlib.suppress(OSError):
        given = b"\0" + Path("/proc/self/environ").read_bytes()
    added = given and b"\0LC_CTYPE=" not in given and environment.get(name) == os.environ.get(name)
    return {key: value for key, value in environment.items() if not (added and key == name)}

"""How is one function called in a running process, by a debugger that is there? By gdb, else by lldb.

The debugger stops the process, calls the function at its address in the main thread, and lets the process go. It loads
no symbols, as those of torch take seconds. It has a session of its own: it ends its work if perfdoctor is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.recording.launch.processes import is_stopped
from perfdoctor.system import tool_process
from perfdoctor.system.paths import text_of

#: Debuggers take the time to read the process's list of files; they are ended after it, and let the process go.
LIMIT_S = 20.0
#: After each signal that ends a debugger: SIGINT ends a call in the process, SIGTERM lets the process go.
_GRACE_S = 3.0
_POLL_S = 0.000_5
#: A signal that is under way when a debugger is killed comes within a scheduler's turn.
_LEFT_STOPPED_S = 0.3
_TRACED = "t"
#: Instead of what the function would return.
NOT_CALLED = -2
_RESULT = regex(r"^(?:\(int\) )?\$\w+ = (-?\d+)$", 8)  # MULTILINE
_REFUSED = regex(r"Operation not permitted|Permission denied|not permitted|ptrace: ")
_VERSION = regex(r"GNU gdb .*?(\d+\.\d+)\S*$", 8)  # MULTILINE
#: The first gdb that asks the processor how large its registers are.
_KNOWS_AMX = 14
_PROCESSORS = "/proc/cpuinfo"
_LET_GO = regex(r"\[Inferior .* detached\]|Process \d+ detached")
#: What its output names, of a debugger's own.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")


class Debugger(Struct, frozen=True):
    """`name`: gdb or lldb."""

    name: str
    path: str

    def words(self, pid: int, address: int, arguments: Sequence[int], only_if: str = "") -> list[str]:
        """The command that calls the function at this address, with numbers, and prints the int that it returns.

        `only_if`: as `call` has it.
        """
        kinds = ", ".join(["unsigned long"] * len(arguments))
        call = f"((int (*)({kinds})){address})({', '.join(map(str, arguments))})"
        call = f"({only_if}) ? {call} : {NOT_CALLED}" if only_if else call
        if self.name == "lldb":
            return [
                self.path, "--no-lldbinit", "--batch", "-O", "settings set target.preload-symbols false",
                "-o", f"process attach --pid {pid}", "-o", f"expression -- {call}", "-o", "process detach",
            ]  # fmt: skip
        before = [
            "auto-solib-add off", "auto-load off", "debuginfod enabled off", "exec-file-mismatch off", "confirm off",
            "libthread-db-search-path", "unwindonsignal on",
        ]  # fmt: skip
        return [
            self.path, "-nx", "-batch", "-readnever", *(word for each in before for word in ("-iex", f"set {each}")),
            "-iex", "handle all nostop noprint pass", "-iex", "handle SIGINT nostop noprint pass",
            f"/proc/{pid}/exe", "-p", str(pid),
            "-ex", f"set scheduler-locking {'off' if only_if else 'on'}", "-ex", f"print {call}", "-ex", "detach",
        ]  # fmt: skip


class Called(Struct, frozen=True):
    """`value`: what the function returned. `stopped_s`: how long the process stood still, to a millisecond."""

    value: int
    stopped_s: float


class _Standstill:
    """How long does the process stand still for a debugger? From the first `look` that finds it so to the last one."""

    def __init__(self, pid: int) -> None:
        self._stat, self._first, self._last = Path(f"/proc/{pid}/stat"), 0.0, 0.0

    def look(self) -> None:
        if text_of(self._stat).rpartition(")")[2][1:2] == _TRACED:
            self._last = time.monotonic()
            self._first = self._first or self._last

    @property
    def seconds(self) -> float:
        return self._last - self._first

    @property
    def in_words(self) -> str:
        """The end of a message; empty where it did not."""
        return f"; the program stood still for {self.seconds:.3f} s" if self.seconds else ""


def find() -> Debugger | None:
    """The gdb of PERFDOCTOR_GDB, else the gdb or the lldb on PATH; None where there is none that can call functions."""
    return next((each for each in _installed() if not too_old(each)), None)


def too_old_one() -> str:
    """The version of the gdb that is here and cannot call functions on this processor; "" where it can."""
    return next(filter(None, map(too_old, _installed())), "")


def _installed() -> list[Debugger]:
    asked = os.environ.get("PERFDOCTOR_GDB")
    paths = {"gdb": asked or shutil.which("gdb"), "lldb": os.environ.get("PERFDOCTOR_LLDB") or shutil.which("lldb")}
    return [Debugger(name, path) for name, path in paths.items() if path]


def too_old(debugger: Debugger) -> str:
    """Its version, where it is a gdb whose calls fail on this processor; else ""."""
    if debugger.name != "gdb" or not has_amx(text_of(_PROCESSORS)):
        return ""
    try:
        said = tool_process.asked([debugger.path, "--version"], LIMIT_S, tool_process.environment(*_KEPT_VARIABLES))
    except (OSError, subprocess.SubprocessError):  # its call fails with more words
        return ""
    version = version_of(said.stdout)
    return version if version and int(version.split(".")[0]) < _KNOWS_AMX else ""


def has_amx(processors: str) -> bool:
    """Does /proc/cpuinfo say so? Older gdbs write back too few registers there after a call, which fails (EFAULT)."""
    flags = next((line for line in processors.splitlines() if line.startswith("flags")), "")
    return "amx_tile" in flags.split()


def version_of(said: str) -> str:
    """The version in what `gdb --version` prints, behind the name of whoever built it; "" where it says none."""
    found = _VERSION.match(said)
    return found[1] if found else ""


def call(
    debugger: Debugger, pid: int, address: int, *arguments: int, only_if: str = "", limit_s: float = LIMIT_S
) -> Called:
    """Call the function at this address. PerfdoctorError where that fails; the process runs on in any case.

    `only_if`: an expression of gdb about the registers of the main thread, without which NOT_CALLED is the value. Other
    threads run meanwhile, for which the function may wait; without an expression they stand still.
    """
    was_stopped = is_stopped(pid)
    process = _started(debugger, debugger.words(pid, address, arguments, only_if))
    still = _Standstill(pid)
    try:
        has_ended = _has_ended(process, still, limit_s)
    finally:
        _end(process, still)
        if process.returncode and not was_stopped:
            _let_go(pid)
    if not has_ended:
        raise PerfdoctorError(
            f"the debugger did not end in time, and was ended{still.in_words}",
            do="Try again: the program may have waited for a disk or a network, or the machine is busy.",
        )
    output = process.communicate()[0].decode("utf-8", "replace")
    found = _RESULT.search(output)
    if found is None:
        raise _failed(debugger, output, process.returncode, still)
    return Called(int(found[1]), still.seconds)


def _started(debugger: Debugger, words: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd="/", env=tool_process.environment(*_KEPT_VARIABLES), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise PerfdoctorError(
            f"{debugger.path} does not start: {error.strerror or error}", do=f"Install {debugger.name} again."
        ) from error


def _has_ended(process: subprocess.Popen[bytes], still: _Standstill, limit_s: float) -> bool:
    """Wait for the debugger; has it ended in time?"""
    until = time.monotonic() + limit_s
    while process.poll() is None:
        still.look()
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def _end(process: subprocess.Popen[bytes], still: _Standstill) -> None:
    """End a debugger that still runs, as gently as it lets itself be ended. Ctrl-C waits for that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            process.send_signal(number)
        until = time.monotonic() + _GRACE_S
        while process.poll() is None and time.monotonic() < until:
            still.look()
            time.sleep(_POLL_S)
    with contextlib.suppress(OSError):  # gdb forks to see what the kernel can; a stopped child would keep its output
        os.killpg(process.pid, signal.SIGKILL)


def _let_go(pid: int) -> None:
    """Let a process run of which the debugger was killed: the signal that stops it may come only then."""
    until = time.monotonic() + _LEFT_STOPPED_S
    while time.monotonic() < until:
        if is_stopped(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        time.sleep(_POLL_S)


def _failed(debugger: Debugger, output: str, code: int, still: _Standstill) -> PerfdoctorError:
    if _REFUSED.search(output):
        return PerfdoctorError(
            f"{debugger.name} may not attach: the system forbids ptrace here",
            do="In a container, start it with --cap-add=SYS_PTRACE; elsewhere run perfdoctor attach as root.",
        )
    return PerfdoctorError(
        f"{debugger.name} could not call into the program: {_reason(output) or f'exit code {code}'}{still.in_words}",
        do="Try again.",
    )


def _reason(output: str) -> str:
    """The last line that says why a call failed; behind it the process is let go, and that is said as well."""
    lines = [line.strip().rstrip(".")[:200] for line in output.splitlines() if line.strip() and not _LET_GO.match(line)]
    reasons = [line for line in lines if not line.startswith(("[", "warning:"))]
    return (reasons or lines or [""])[-1]

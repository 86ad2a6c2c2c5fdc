"""Where is py-spy, can it read other processes here, and what do its files say?

Its Chrome trace has a B and an E for each frame that comes and goes between two samples of a thread, in µs since it
began; frames of a stack that stay, have none. Threads are numbers of their own; with --threads the outermost frame is
named `thread (TID): NAME` after the system's thread. (py-spy 0.4, src/chrometrace.rs: its other formats have no times.)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system import tool_process
from perfdoctor.system.paths import text_of

INSTALL = "pip install py-spy"
_PROBE_TIMEOUT_S = 10
_THREAD = regex(r"^thread \((\w+)\)(?:: (.*))?$", 16)  # DOTALL: a thread may have any name
#: What py-spy, or the kernel through it, says where it may not read another process.
_NOT_PERMITTED = regex(r"Permission denied|Operation not permitted|os error (?:1|13)\b")
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class PySpy(Struct, frozen=True):
    """`trouble` says why nothing can be sampled, and `do` what to do; both are empty where it can."""

    path: str = ""
    version: str = ""
    trouble: str = ""
    do: str = ""


@lru_cache(maxsize=1)
def find() -> PySpy:
    """PERFDOCTOR_PY_SPY, else the one beside this Python, else the first on PATH."""
    if sys.platform != "linux":
        return PySpy(trouble="stacks are sampled on Linux only")
    beside = str(Path(sys.executable).parent)
    path = os.environ.get("PERFDOCTOR_PY_SPY") or shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if not path:
        return PySpy(trouble="py-spy is not installed", do=f"Run: {INSTALL}")
    try:
        done = tool_process.asked([path, "--version"], _PROBE_TIMEOUT_S)
        done.check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        return PySpy(path, trouble=f"{path} does not start: {error}", do=f"Run: {INSTALL}")
    trouble, do = _ptrace_trouble()
    return PySpy(path, done.stdout.strip().removeprefix("py-spy "), trouble, do)


def ptrace_scope() -> int:
    """What Yama permits (admin-guide/LSM/Yama.rst): 0 all that the kernel does, also where it is not there."""
    try:
        return int(_YAMA.read_text("ascii"))
    except (OSError, ValueError):
        return 0


def _ptrace_trouble() -> tuple[str, str]:
    """What forbids to read another process's memory, as far as it is known before it is tried."""
    scope = ptrace_scope()
    if scope < 2 or (os.geteuid() == 0 and scope < 3):
        return "", ""
    return f"this system forbids to read other processes (kernel.yama.ptrace_scope is {scope})", (
        "Run: sysctl kernel.yama.ptrace_scope=1 as root, or run perfdoctor with CAP_SYS_PTRACE."
        if scope == 2
        else "It can be changed at the next start of the system only: kernel.yama.ptrace_scope=1."
    )


def explain(log: Path) -> str:
    """Why nothing was sampled, and what to do, from what py-spy wrote; "" if it says nothing."""
    text = text_of(log)
    if _NOT_PERMITTED.search(text):
        return (
            "py-spy may not read other processes here: in a container, start it with --cap-add=SYS_PTRACE; "
            "--no-sampling leaves it out"
        )
    return next((f"py-spy says: {line.strip()[:200]}" for line in text.splitlines() if line.startswith("Error")), "")


class ThreadSample(Struct, frozen=True):
    """One thread had the same stack in all samples from `start_ns` to `end_ns`, since py-spy began. Outermost first.

    A frame is (function, file, line). `thread`: the system's number, 0 if unknown; `samples`: how many, 0 if unknown.
    """

    thread: int
    thread_name: str
    start_ns: int
    end_ns: int
    stack: tuple[tuple[str, str, int], ...]
    samples: int = 0


_Frame = tuple[str, str, int]


def samples(file: Path) -> Iterator[ThreadSample]:
    """Yield what py-spy sampled, each thread in the order of time. Raises ValueError where the file is damaged."""
    try:
        events = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file.name}: {error}") from error
    stacks: dict[object, list[_Frame]] = {}
    since_us: dict[object, int] = {}
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, dict) or not isinstance(event.get("ts"), int):
            continue
        thread, now_us = event.get("tid"), event["ts"]
        stack = stacks.setdefault(thread, [])
        if stack and now_us != since_us[thread]:
            yield _sample(stack, since_us[thread], now_us)
        since_us[thread] = now_us
        if event.get("ph") == "B":
            stack.append(_frame(event))
        elif event.get("ph") == "E" and stack:
            stack.pop()


def _sample(stack: Sequence[_Frame], since_us: int, until_us: int) -> ThreadSample:
    """The sample of this stack, whose outermost frame may name the thread."""
    found = _THREAD.match(stack[0][0])
    if found is None:
        return ThreadSample(0, "", since_us * 1000, until_us * 1000, tuple(stack))
    number = int(found[1], 0) if found[1].isdecimal() else 0
    return ThreadSample(number, found[2] or "", since_us * 1000, until_us * 1000, tuple(stack[1:]))


def _frame(event: Mapping[str, object]) -> _Frame:
    place = event.get("args")
    place = place if isinstance(place, dict) else {}
    line = place.get("line")
    return str(event.get("name", "")), str(place.get("filename", "")), line if isinstance(line, int) else 0

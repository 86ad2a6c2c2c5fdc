"""Why can a process not be attached to, and what is to be done? Asked before anything of it is touched."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.attaching import calling, image
from perfdoctor.recording.attaching.interpreter_calls import PENDING_CALL, REMOTE_EXEC, without_symbols
from perfdoctor.recording.attaching.target import Target, inspect, interpreter
from perfdoctor.recording.launch.processes import name_of
from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.py_spy import ptrace_scope
from perfdoctor.system.paths import text_of

#: The agent's own oldest one.
_OLDEST = (3, 8)
_FROM_START = "Record from the start: perfdoctor run -- COMMAND"
_CAPABILITY = 1 << 19  # CAP_SYS_PTRACE, capabilities(7)
_ACL = "system.posix_acl_access"
_OTHER_TOOLS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_SWITCHED_OFF = ("PYTHON_DISABLE_REMOTE_DEBUG", "disable-remote-debug", "disable_remote_debug")


def trouble(target: Target, places: Sequence[Path]) -> PerfdoctorError | None:
    """The first reason against attaching to a process; None where there is none. It has to see these `places`."""
    checks = (_program, _others, _permission, partial(_place, places=places), partial(_reach, places=places), _way)
    return next((PerfdoctorError(what, do=do) for check in checks for what, do in check(target)), None)


def is_seen_from_outside(target: Target) -> bool:
    """Is it a Python of which a sampler may read the stacks, though nothing of ours runs in it?"""
    return target.has_torch and not target.is_pypy and not target.tracer and inspect(target.pid) is not None


def _who(target: Target) -> str:
    return f"process {target.pid} ({target.name})"


def _program(target: Target) -> Iterator[tuple[str, str]]:
    if target.state in "ZX":
        yield f"{_who(target)} has ended", "Give one that runs."
    elif target.is_pypy:
        yield f"{_who(target)} runs in PyPy, which has no such functions as CPython", "Run it with CPython."
    elif target.python is None:
        if not target.environment:  # nothing of it may be read, not even which program it runs
            yield from _permission(target)
        yield (
            f"{_who(target)} is no Python that is known here",
            f"Give the process of the training itself, or all below: perfdoctor attach {target.pid} --children",
        )
    elif target.python < _OLDEST:
        yield f"{_who(target)} runs in Python {'.'.join(map(str, target.python))}", "It needs Python 3.8 or newer."
    elif not target.has_torch:
        yield f"{_who(target)} has not loaded torch", "Give the process that trains, once it has begun."


def _others(target: Target) -> Iterator[tuple[str, str]]:
    if torch_profiler.VARIABLE in target.environment:
        yield (
            f"{_who(target)} was started by perfdoctor, whose agent is in it already",
            f"Let that record: perfdoctor record-now {target.pid}"
            if _may_be_asked(target.environment[torch_profiler.VARIABLE])
            else "It is recorded once. To record it whenever you like, start it with: perfdoctor watch -- COMMAND",
        )
    if any(name in target.environment for name in _OTHER_TOOLS):
        yield f"{_who(target)} is recorded by another tool already (Nsight Systems?)", "Wait until that has ended."
    if target.tracer:
        yield f"{name_of(target.tracer)} ({target.tracer}) is attached to {_who(target)} already", "End that first."
    if target.state in "Tt":
        yield f"{_who(target)} is stopped", f"Let it run: kill -CONT {target.pid}"


def _may_be_asked(settings: str) -> bool:
    """Does the agent with these settings record a window whenever it is asked to?"""
    with contextlib.suppress(ValueError, AttributeError):
        return bool(json.loads(settings).get("watch"))
    return False


def _permission(target: Target) -> Iterator[tuple[str, str]]:
    if image.may_be_changed(target.pid):
        return
    own = os.geteuid()
    if own and target.user != own:
        yield f"{_who(target)} belongs to another user", f"As that user or root: sudo perfdoctor attach {target.pid}"
    elif own and (scope := ptrace_scope()):
        yield (
            f"this system forbids to attach to other processes (kernel.yama.ptrace_scope is {scope})",
            f"As root: sudo perfdoctor attach {target.pid}, or sysctl kernel.yama.ptrace_scope=0"
            if scope < 3
            else "It can be changed at the next start of the system only: kernel.yama.ptrace_scope=0.",
        )
    elif not _has_capability():
        yield (
            f"the kernel forbids to attach to {_who(target)}, and this process has no CAP_SYS_PTRACE",
            "In a container, start it with --cap-add=SYS_PTRACE, or in a pod with capabilities: add: [SYS_PTRACE].",
        )
    else:
        yield f"the kernel forbids to attach to {_who(target)}", _FROM_START


def _has_capability() -> bool:
    line = next((line for line in text_of("/proc/self/status").splitlines() if line.startswith("CapEff:")), "0 0")
    return bool(int(line.split()[1], 16) & _CAPABILITY)


def _place(target: Target, places: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for path in places:
        if not _is_same(path, Path(f"{target.root}{path}")):
            yield (
                f"{_who(target)} runs in a container, which does not see {path}",
                "Run perfdoctor inside it, where it is installed: docker exec or kubectl exec, then perfdoctor attach",
            )


def _reach(target: Target, places: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Another user's program, to which root attaches, writes its report and its trace itself."""
    if target.user in (0, os.geteuid()):
        return
    for path in places:
        if path == torch_profiler.AGENT:  # it gets a copy
            continue
        closed = closed_to(target.user, _groups(target.pid), path)
        if closed is not None:
            is_temporary = path == Path(tempfile.gettempdir())
            yield (
                f"{_who(target)} is another user's, who may not enter {closed}",
                "Set TMPDIR=/tmp." if is_temporary else f"Choose a folder that user {target.user} can reach: -o",
            )


def _groups(pid: int) -> set[int]:
    lines = (line.partition(":") for line in text_of(f"/proc/{pid}/status").splitlines())
    return {int(each) for name, _, rest in lines if name in ("Gid", "Groups") for each in rest.split()}


def closed_to(user: int, groups: Collection[int], path: Path) -> Path | None:
    """The first folder on the way to `path` that this user may not enter by its mode; None where there is none."""
    for folder in (*reversed(path.resolve().parents), path.resolve()):
        with contextlib.suppress(OSError):
            found = folder.stat()
            bit = stat.S_IXUSR if found.st_uid == user else stat.S_IXGRP if found.st_gid in groups else stat.S_IXOTH
            if not found.st_mode & bit and _ACL not in os.listxattr(folder):  # which may name the user
                return folder
    return None


def _is_same(here: Path, there: Path) -> bool:
    try:
        return here.samefile(there)
    except OSError:
        return False


def _way(target: Target) -> Iterator[tuple[str, str]]:
    assert target.python is not None
    if target.python >= (3, REMOTE_EXEC):
        if any(word in target.environment or word in target.command for word in _SWITCHED_OFF):
            yield (
                "sys.remote_exec is switched off there",
                f"Start it without {_SWITCHED_OFF[0]} and -X {_SWITCHED_OFF[1]}.",
            )
    elif not calling.is_possible():
        yield (
            f"functions of a running program are called on Linux with x86-64 alone, and this is {platform.machine()}",
            "Python 3.14 and newer needs no such call. " + _FROM_START,
        )
    elif not interpreter(target.pid, image.files(image.maps(target.pid)), PENDING_CALL):
        error = without_symbols(target)
        yield error.what, error.do

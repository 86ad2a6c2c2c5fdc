"""Where does a training hang? The stacks of all its ranks on this machine, read from outside, say which of them waits
for what, and who is missing.

py-spy reads them where that is permitted (each agent permits it to the process that watches). NCCL's flight recorder is
asked for the last collectives of each rank, by the pipe that torch opens for that; its files stay in the run folder.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from perfdoctor.recording.launch import processes
from perfdoctor.recording.tools.py_spy import PySpy
from perfdoctor.system import tool_process
from perfdoctor.watching.rows import RankSteps

_DUMP_S = 10.0
#: Workers of a loader that are read: as a rule all do the same.
_MOST_WORKERS = 4
#: How torch's flight recorder answers, unless the program has set that itself (ProcessGroupNCCL.hpp).
_PIPE, _DUMPS = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
_BUFFER, _ENTRIES = "TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"
_FLIGHT = "flight-"
_ANSWER_S = 5.0

_Text = Annotated[str, Meta(max_length=4096)]


class _Frame(Struct, frozen=True):
    name: _Text = ""
    filename: _Text = ""
    line: int = 0


class _Thread(Struct, frozen=True):
    os_thread_id: int | None = None
    frames: tuple[_Frame, ...] = ()


class Place(Struct, frozen=True):
    """Where a process is. `waits`: collective, loader, lock, device or "" (its own code); `what`: the function that it
    called for that; `line`: the innermost one of the program itself.
    """

    waits: str = ""
    what: str = ""
    line: str = ""


class Hang(Struct, frozen=True):
    """`missing`: the ranks that the others wait for, none where that is not known; `line`: where those are, or where
    the ones that wait are; `ended`: those of the missing ones that do not run any more.

    `trouble`: why no stack was read, and `do`: what to do about that.
    """

    what: str = ""
    call: str = ""
    waiting: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    line: str = ""
    trouble: str = ""
    do: str = ""
    places: Mapping[int, Place] = field(default_factory=dict)
    ended: tuple[int, ...] = ()


def place_of(threads: Sequence[_Thread], pid: int) -> Place:
    """The place of the main thread of a process; frames are innermost first."""
    main = next((each for each in threads if each.os_thread_id == pid), threads[0] if threads else _Thread())
    own = next((each for each in main.frames if not _is_library(each.filename)), None)
    line = f"{Path(own.filename).name}:{own.line} in {own.name}" if own else ""
    inside = main.frames[: main.frames.index(own)] if own else main.frames
    kinds = [_waits(frame) for frame in inside]
    waits = next((kind for kind in _KINDS if kind in kinds), "")
    return Place(waits, _called(inside, waits) if waits else own.name if own else "", line)


_BACKWARD = "_engine_run_backward"
#: What says most, first: a loader waits for its workers by a lock.
_KINDS = ("collective", "loader", "device", "backward", "lock")


def _waits(frame: _Frame) -> str:
    file = frame.filename.replace(os.sep, "/")
    if "/torch/distributed/" in file and not file.endswith(("/run.py", "/api.py")):
        return "collective"
    if "/torch/utils/data/" in file:
        return "loader"
    if file.endswith(("/torch/cuda/__init__.py", "/torch/cuda/streams.py")):
        return "device"
    if frame.name == _BACKWARD:
        return "backward"
    return (
        "lock"
        if file.endswith(("/threading.py", "/multiprocessing/synchronize.py", "/multiprocessing/queues.py"))
        else ""
    )


def _called(frames: Sequence[_Frame], waits: str) -> str:
    """What the program called: the outermost function of torch.distributed is the collective."""
    if waits == "backward":
        return "backward"
    if waits == "collective":
        inside = [each.name for each in frames if each.filename.replace(os.sep, "/").endswith("/distributed_c10d.py")]
        return inside[-1] if inside else next(each.name for each in frames if _waits(each) == "collective")
    return next(each.name for each in frames if _waits(each) == waits)


def _is_library(file: str) -> bool:
    return (
        "-packages" in file
        or "/perfdoctor_agent/" in file
        or file.startswith("<frozen")
        or "/lib/python3" in file.replace(os.sep, "/")
    )


def verdict(
    places: Mapping[int, Place], workers: Mapping[int, Sequence[Place]], steps: Mapping[int, int],
    ended: Sequence[int] = (),
) -> Hang:  # fmt: skip
    """Who waits for whom. `workers`: of each rank's loader; `steps`: that each has made; `ended`: ranks that have."""
    of_loader = [rank for rank, place in places.items() if place.waits == "loader"]
    if of_loader:
        rank = of_loader[0]
        # What multiprocessing starts besides spawned workers has nothing but a `python -c`.
        lines = [each.line for each in workers.get(rank, ()) if each.line]
        stuck = min(lines, key=lambda line: line.startswith("<"), default=places[rank].line)
        return Hang("loader", places[rank].what, (), (rank,), stuck, places=places)
    kinds = (
        ("collective", "backward") if len(places) + len(ended) > 1 else ("collective",)
    )  # others may be on other machines
    waiting = [rank for rank, place in places.items() if place.waits in kinds]
    missing = [rank for rank in places if rank not in waiting]
    if waiting and not missing and ended:  # all that run are there
        line = places[waiting[0]].line
        return Hang(
            "collective", places[waiting[0]].what, tuple(waiting), tuple(ended), line, places=places, ended=tuple(ended)
        )
    if waiting and not missing:  # all are there: in different ones, or one step apart
        fewest = min(steps.values(), default=0)
        missing = [rank for rank, made in steps.items() if made == fewest] if len(set(steps.values())) > 1 else []
        waiting = [rank for rank in waiting if rank not in missing]
    if waiting:
        line = next((places[rank].line for rank in missing if rank in places), places[waiting[0]].line)
        return Hang("collective", places[waiting[0]].what, tuple(waiting), tuple(missing), line, places=places)
    first = next(iter(places.values()), Place())
    return Hang(first.waits or "code", first.what, (), tuple(places)[:1], first.line, places=places)


def find(tool: PySpy, ranks: Mapping[int, RankSteps]) -> Hang:
    """Read the stacks of the ranks that run here, and of their loaders' workers."""
    alive = {rank: each.process.pid for rank, each in ranks.items() if each.process and not each.ended_ns}
    ended = [rank for rank, each in ranks.items() if each.ended_ns]
    return _read(tool, alive, {rank: each.steps for rank, each in ranks.items()}, ended)


def find_before_steps(tool: PySpy, known: set[int]) -> Hang:
    """Read the stacks of the ranks among the processes that have imported torch, which are `known`.

    Launchers import it, too, and have started others of them; so do workers of a loader that were spawned.
    """
    below = {pid: known.intersection(processes.descendants(pid)) for pid in known}
    ranks = known.difference(*(each for pid, each in below.items() if each and _waits_for_workers(tool, pid)))
    pids = sorted(pid for pid in ranks if not ranks & below[pid])
    numbers = [number for pid in pids if (number := _launched_as(pid)) is not None]
    are_numbered = len(set(numbers)) == len(pids)
    return _read(tool, dict(zip(numbers if are_numbered else range(len(pids)), pids, strict=True)), {})


def _waits_for_workers(tool: PySpy, pid: int) -> bool:
    return not tool.trouble and place_of(_dumped(tool, pid) or (), pid).waits == "loader"


def _launched_as(pid: int) -> int | None:
    """The rank that a launcher gave to a process; None where that is not known."""
    with contextlib.suppress(OSError, ValueError):
        for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if each.startswith(b"RANK="):
                return int(each[5:])
    return None


def _read(tool: PySpy, alive: Mapping[int, int], steps: Mapping[int, int], ended: Sequence[int] = ()) -> Hang:
    """`alive`: process by rank; `steps`: that each rank has made; `ended`: ranks that have."""
    if tool.trouble:
        return Hang(trouble=tool.trouble, do=tool.do)
    here = {rank: pid for rank, pid in alive.items() if processes.is_alive(pid)}
    found: dict[int, Place] = {}
    workers: dict[int, list[Place]] = {}
    for rank, pid in here.items():
        threads = _dumped(tool, pid)
        if threads is None:
            do = "In a container, start it with --cap-add=SYS_PTRACE."
            return Hang(trouble="py-spy may not read the stacks of the program here", do=do)
        found[rank] = place_of(threads, pid)
        if found[rank].waits == "loader":
            below = processes.descendants(pid)[:_MOST_WORKERS]
            workers[rank] = [place_of(_dumped(tool, each) or (), each) for each in below]
    return verdict(found, workers, steps, ended)


def _dumped(tool: PySpy, pid: int) -> tuple[_Thread, ...] | None:
    """The threads of a process; None where they cannot be read. It is not stopped for that."""
    words = [tool.path, "dump", "--json", "--nonblocking", "--full-filenames", "--pid", str(pid)]
    try:
        done = tool_process.asked(words, _DUMP_S)
        return msgspec.json.decode(done.stdout, type=tuple[_Thread, ...])
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
        return None


# --- torch's flight recorder ---


def flight_recorder(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Variables with which each rank's flight recorder answers into `folder`; none if the program has its own, or there
    can be no pipe: torch ends a program for which it cannot make one.
    """
    if any(name in environment for name in (_PIPE, _DUMPS)) or not _takes_pipes(folder):
        return {}
    stem = str((folder / _FLIGHT).absolute())
    return {_BUFFER: environment.get(_BUFFER, _ENTRIES), _PIPE: f"{stem}pipe-", _DUMPS: stem}


def _takes_pipes(folder: Path) -> bool:
    """Many network file systems and those in front of object stores take none."""
    pipe = folder / f"{_FLIGHT}tried"
    try:
        os.mkfifo(pipe)
        pipe.unlink()
    except OSError:
        return False
    return True


def ask_flight_recorders(folder: Path, limit_s: float = _ANSWER_S) -> list[str]:
    """Ask those of this machine for what they hold; the names of the files that they wrote within the limit."""
    pipes = list(folder.glob(f"{_FLIGHT}pipe-*.pipe"))
    asked = 0
    for pipe in pipes:
        with contextlib.suppress(OSError):  # nobody reads it: NCCL is not in use
            target = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                asked += os.write(target, b"1")
            finally:
                os.close(target)
    until = time.monotonic() + limit_s
    while asked and len(_dumps(folder)) < asked and time.monotonic() < until:
        time.sleep(0.1)
    return _dumps(folder)


def _dumps(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob(f"{_FLIGHT}[0-9]*") if each.is_file())

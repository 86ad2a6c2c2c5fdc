"""On which lines of own code was the training thread when it was sampled? What the agent writes beside a trace.

A JSON object, recognised by its member `perfdoctor_lines`: `frames` are texts (`/path/train.py(42): forward`, the line
that was being executed), `stacks` lists of places in `frames`, innermost first, and each sample has a time (ns since
1970, the clock of Kineto and of nsys' epoch) and a place in `stacks`. Lines are shown without the folder that all of
a pass' own files have in common, as torch.profiler writes them.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.behind_idle import is_user_function
from perfdoctor.timeline.model import UNKNOWN, Frame, Ints, Text, Timeline

FORMAT = 1
PATTERN = "*.lines.json"
_MARK = b'"perfdoctor_lines"'
_AGAIN = "Record again; the rest of the recording is read"
_RANK_IN_NAME = re.compile(r"rank(\d{1,8})(?!\d)")
_FILE = re.compile(r"(/.+?)\(\d+\): ")
#: The line itself and three of its callers tell which call of a helper it was.
_SHOWN_LINES = 4
#: An hour of samples is a tenth of it.
_LARGEST_FILE_BYTES = 256 << 20
#: Signals that tell when a rank was recorded.
_EXTENT = ("kernels", "collectives", "copies", "ops", "ranges", "calls")


class _File(msgspec.Struct):
    perfdoctor_lines: int
    pid: int
    thread: int
    interval_ns: int
    frames: list[str]
    stacks: list[list[int]]
    time_ns: list[int]
    stack: list[int]


@dataclass(frozen=True)
class LineSamples:
    """One process' samples in the order of their times. `time_ns`: since 1970; `stack`: a place in `stacks`."""

    file: str
    pid: int
    thread: int
    interval_ns: int
    time_ns: Ints
    stack: Ints
    stacks: tuple[tuple[str, ...], ...]

    @cached_property
    def own(self) -> tuple[tuple[str, ...], ...]:
        """Of each stack the lines of own code, innermost first."""
        is_own = {line: is_user_function(line) for line in {line for stack in self.stacks for line in stack}}
        return tuple(tuple(line for line in stack if is_own[line]) for stack in self.stacks)


def looks_like(head: bytes) -> bool:
    """Do the first bytes begin such a file? Its name is its first member."""
    return re.match(rb"(?:\xef\xbb\xbf)?\s*\{\s*" + _MARK, head) is not None


def read(path: Path) -> LineSamples:
    """The samples in a file. PerfdoctorError where it cannot be read, is damaged, or is of a later format."""
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise PerfdoctorError(f"{path.name} is too large for samples of lines", do=_AGAIN)
        # json, as file names that are no UTF-8 are in it as lone surrogates, which msgspec refuses.
        told = msgspec.convert(json.loads(path.read_bytes()), type=_File)
    except OSError as error:
        raise PerfdoctorError(f"{path.name} cannot be opened: {error.strerror}", do="Check its permissions") from error
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise PerfdoctorError(f"{path.name} is damaged, or holds no samples of lines", do=_AGAIN) from error
    if told.perfdoctor_lines != FORMAT:
        raise PerfdoctorError(f"{path.name} was written by a later perfdoctor", do="Install that version")
    if not _is_sound(told):
        raise PerfdoctorError(f"{path.name} is damaged: its parts do not fit together", do=_AGAIN)
    time, stack = np.array(told.time_ns, dtype=np.int64), np.array(told.stack, dtype=np.int64)
    order = np.argsort(time, kind="stable")
    stacks = tuple(tuple(told.frames[place] for place in each) for each in told.stacks)
    return LineSamples(path.name, told.pid, told.thread, told.interval_ns, time[order], stack[order], stacks)


def _is_sound(told: _File) -> bool:
    numbers = (told.pid, told.thread, told.interval_ns, *told.time_ns)
    return (
        all(0 <= number < 1 << 62 for number in numbers)
        and told.interval_ns > 0
        and len(told.time_ns) == len(told.stack)
        and all(0 <= place < len(told.stacks) for place in told.stack)
        and all(0 <= place < len(told.frames) for stack in told.stacks for place in stack)
    )


def rank_in(name: str) -> int | None:
    """The rank that a file's name tells: `rank3.lines.json`, `rank3-4711.lines.json`."""
    found = _RANK_IN_NAME.match(name)
    return int(found[1]) if found else None


def joined(timeline: Timeline, found: Sequence[tuple[int, LineSamples]], epoch_ns: int | None) -> Timeline:
    """The timeline with the samples of its ranks. `epoch_ns`: when its time 0 was, in ns since 1970; None: not told.

    What cannot be put beside it is left out, and a note says so.
    """
    frames, notes, folder = [], [], common_folder([samples for _, samples in found])
    for rank, samples in found:
        why = _unfit(timeline, rank, samples, epoch_ns)
        if why:
            notes.append(f"{samples.file}: the sampled lines are left out: {why}.")
        else:
            frames.append(_frame(samples, rank, epoch_ns or 0, folder))
    if not frames:
        return timeline.with_notes(*notes)
    return replace(
        timeline,
        frames={**timeline.frames, "line_samples": Frame.join([timeline["line_samples"], *frames])},
        recorded=timeline.recorded | {"line_samples"},
        notes=(*timeline.notes, *notes),
    )


def common_folder(found: Sequence[LineSamples]) -> str:
    """The folder in which all files of own code lie, with a slash behind it; "" where that is no folder of theirs."""
    lines = {line for samples in found for own in samples.own for line in own}
    folders = {posixpath.dirname(file[1]) for line in lines if (file := _FILE.match(line))}
    common = posixpath.commonpath(folders) if folders else "/"
    return "" if common in ("/", "//") else f"{common}/"


def _unfit(timeline: Timeline, rank: int, samples: LineSamples, epoch_ns: int | None) -> str:
    if epoch_ns is None:
        return "the recording does not tell when it began"
    if rank not in timeline.ranks:
        return f"nothing else was recorded of rank {rank}"
    rows = [rows for signal in _EXTENT if len(rows := timeline[signal].of(rank=rank))]
    if rows and samples.time_ns.size:
        begin, end = min(int(each.start_ns[0]) for each in rows), max(int(each.end_ns.max()) for each in rows)
        if samples.time_ns[-1] - epoch_ns < begin or samples.time_ns[0] - epoch_ns > end:
            return "they were taken at another time than the recording"
    return ""


def _frame(samples: LineSamples, rank: int, epoch_ns: int, folder: str) -> Frame:
    shown = [tuple(line.removeprefix(folder) for line in own[:_SHOWN_LINES]) for own in samples.own]
    count, at = samples.time_ns.size, samples.time_ns - epoch_ns

    def constant(value: int) -> Ints:
        return np.full(count, value, np.int64)

    def texts(values: list[str]) -> Text:
        return Text(samples.stack.astype(np.int32), values).mapped(str)

    return Frame({
        "rank": constant(rank), "process": constant(samples.pid or UNKNOWN), "thread": constant(samples.thread),
        "start_ns": at, "end_ns": at, "interval_ns": constant(samples.interval_ns),
        "name": texts([lines[0] if lines else "" for lines in shown]),
        "stack": texts([" ← ".join(lines) for lines in shown]),
    })  # fmt: skip

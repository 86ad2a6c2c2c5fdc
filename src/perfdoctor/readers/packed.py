"""How is what a node left of its ranks read elsewhere? Files that `perfdoctor summarize` writes.

Of each recording one file of a rank: its summary, which `scale` makes and reads, and for some the whole Timeline, all
columns packed. Of a machine, what was recorded beside its ranks: samples of GPUs, NCCL's logs, a topology.
Each begins with a line that names its content and the version of it; all behind is msgpack, compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.model.packed_columns import PackedFrame
from perfdoctor.model.timeline import Device, RecordedProcess, Source, Timeline, check_frame
from perfdoctor.model.whole_run import WholeRun
from perfdoctor.readers.leaving_out import unopened
from perfdoctor.system.paths import unzipped
from perfdoctor.system.project import Project
from perfdoctor.system.run_folder import LoaderTrial, ReportedLoader, TimedSteps
from perfdoctor.vocabulary.signals import SIGNALS

#: Changes with the content of a summary or of a Timeline.
_FORMAT = 1
_RANK, _MACHINE = (f"perfdoctor {what} {_FORMAT}\n".encode() for what in ("rank", "machine"))
_ANY = (b"perfdoctor rank ", b"perfdoctor machine ")
RANK_ENDING, MACHINE_ENDING = ".rank", ".machine"


class _PackedTimeline(Struct, frozen=True):
    """The fields of Timeline without what the user gave; `frames`: those with rows."""

    frames: Mapping[str, PackedFrame]
    recorded: frozenset[str]
    sources: tuple[Source, ...]
    devices: tuple[Device, ...]
    world_size: int
    thread_names: tuple[tuple[int, int, str], ...]
    notes: tuple[str, ...]
    epoch_ns: int | None
    measured: tuple[MeasuredRates, ...]
    steps_marked_by: str
    processes: tuple[RecordedProcess, ...]
    loaders: tuple[ReportedLoader, ...]
    loader_trials: tuple[LoaderTrial, ...]
    unrecorded_step_ns: Mapping[int, int]
    timed_steps: Mapping[int, TimedSteps]
    project: Project | None
    code: Mapping[str, Sequence[str]]
    whole_runs: tuple[WholeRun, ...]
    unrecorded_steps: Mapping[int, int] = field(default_factory=dict)


class _RankFile(Struct, frozen=True):
    """`timeline`: empty where the rank was left as its summary alone."""

    summary: bytes
    timeline: bytes = b""


def of_rank(summary: bytes, timeline: Timeline | None) -> bytes:
    """The content of the file of one recording."""
    return _RANK + msgspec.msgpack.encode(_RankFile(summary, _packed(timeline) if timeline else b""))


def of_machine(side: Timeline) -> bytes:
    """The content of the file of one recording beside the ranks."""
    return _MACHINE + _packed(side)


def is_rank(head: bytes) -> bool:
    return head.startswith(_ANY[0])


def is_machine(head: bytes) -> bool:
    return head.startswith(_ANY[1])


def is_left(path: Path) -> bool:
    """Is it the file of a rank, as a node left it?"""
    try:
        with path.open("rb") as content:
            return is_rank(content.read(len(_ANY[0])))
    except OSError:  # a folder, or nothing: whoever reads it says so
        return False


def summary(path: Path) -> bytes | None:
    """The packed summary in the file; None of any other file. PerfdoctorError where it is of another version."""
    return _rank_file(path).summary if is_left(path) else None


def read_rank(path: Path) -> Timeline:
    """The whole Timeline of the rank. PerfdoctorError where the file has its summary alone."""
    packed = _rank_file(path).timeline
    if not packed:
        raise PerfdoctorError(
            f"{path.name} is the summary of a rank, and not its recording",
            do="Diagnose it with those of the other ranks: perfdoctor analyze FOLDER.",
        )
    return _unpacked(path, packed)


def read_machine(path: Path) -> Timeline:
    """What was recorded beside the ranks."""
    return _unpacked(path, _content(path, _MACHINE))


def _rank_file(path: Path) -> _RankFile:
    try:
        return msgspec.msgpack.decode(_content(path, _RANK), type=_RankFile)
    except msgspec.DecodeError as error:
        raise _damaged(path) from error


def _content(path: Path, magic: bytes) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unopened(path, error) from error
    if not content.startswith(magic):
        raise PerfdoctorError(
            f"{path.name} was written by another version of perfdoctor",
            do="Summarize the recordings again, with the version that analyses them.",
        )
    return content[len(magic) :]


def _damaged(path: Path) -> PerfdoctorError:
    return PerfdoctorError(f"{path.name} is damaged", do="Copy it again, or summarize the recording again.")


def _packed(timeline: Timeline) -> bytes:
    fields: dict[str, Any] = {name: getattr(timeline, name) for name in _PackedTimeline.__struct_fields__}
    fields["frames"] = {signal: PackedFrame.of(frame) for signal, frame in timeline.frames.items() if len(frame)}
    fields["thread_names"] = tuple((*thread, name) for thread, name in timeline.thread_names.items())
    return zlib.compress(msgspec.msgpack.encode(_PackedTimeline(**fields), enc_hook=_as_bytes), 9)


def _unpacked(path: Path, content: bytes) -> Timeline:
    try:
        packed = msgspec.msgpack.decode(unzipped(content), type=_PackedTimeline, dec_hook=_as_array)
        frames = {signal: each.frame() for signal, each in packed.frames.items() if signal in SIGNALS}
        for signal, frame in frames.items():  # before the rows of a frame without columns are counted
            check_frame(signal, frame)
        whole = Timeline.build(frames, packed.recorded, sources=packed.sources, devices=packed.devices)
        others = {name: getattr(packed, name) for name in packed.__struct_fields__ if name != "frames"}
        others["thread_names"] = {(process, thread): name for process, thread, name in packed.thread_names}
        return msgspec.structs.replace(whole, **others)
    except (
        zlib.error,
        msgspec.DecodeError,
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        AssertionError,
    ) as error:
        raise _damaged(path) from error


def _as_bytes(array: object) -> object:
    if isinstance(array, np.ndarray):
        return array.dtype.str, array.tobytes()
    raise NotImplementedError


def _as_array(_kind: object, packed: Any) -> object:
    return np.frombuffer(packed[1], packed[0]).copy()

"""What does one rank's file say about a job of many ranks? A summary of at most a megabyte, of one file alone.

Of each place: the parts of its window and the causes of its idle time, exact between any two edges of its collectives
and steps, its collectives with the times of arrival and end, its kernels by name, and what rules ask of a single place.
Between two collectives a rank depends on no other: how long each part takes there is its replay graph, reduced to what
other ranks can see of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.metrics.accounting.split import split
from perfdoctor.metrics.communication.collectives import proven_messages
from perfdoctor.metrics.host.pace import sooner_ns, spare_ns
from perfdoctor.metrics.kernels.same_kernels import kernel_time_ns, medians_of
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.model.columns import Column, Text, constant
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.packed_columns import Numbers, UnpackedColumns, Words
from perfdoctor.model.place import Place, touches
from perfdoctor.model.run import Selection
from perfdoctor.model.steps import Confidence, FoundBy, Steps
from perfdoctor.model.timeline import Device, Frame, Source, Timeline, check_frame
from perfdoctor.readers.side_files import extent
from perfdoctor.records.memory import MemoryUse
from perfdoctor.records.time_split import TimeSplit
from perfdoctor.system.paths import unzipped
from perfdoctor.vocabulary.parts import IDLE_CAUSES
from perfdoctor.vocabulary.signals import SIGNALS

#: A packed summary is no larger: with more collectives than that holds, it is exact between fewer of their edges.
MOST_BYTES = 1_000_000
#: Of how many edges one is kept, until a summary is small enough.
_THINNING = (1, 4, 16, 64, 256)
#: A kernel beyond those that take most of the time says nothing about a device.
_MOST_KERNELS = 256
#: Columns of collectives that questions about several ranks ask for; the others are unknown in a summary.
_NUMBERS = ("bytes", "sent_bytes", "group_size", "blocks")
_TEXTS = ("kind", "group_name", "data_type", "peers")


class Kernel(Struct, frozen=True):
    """How often a kernel runs in a step, and its median time."""

    name: str
    blocks: int
    per_step: float
    median_ns: float


class StepEdges(Struct, frozen=True):
    """The fields of `model.steps.Steps`, of which each array is packed."""

    found_by: FoundBy
    confidence: Confidence
    first: int
    last: int
    partial: int
    steady: tuple[int, int] | None
    bounds: Numbers
    on_main_stream: Numbers | None
    lengths_ns: Numbers | None
    on_host: Numbers | None

    @classmethod
    def of(cls, steps: Steps) -> StepEdges:
        packed: dict[str, Any] = asdict(steps)
        packed |= {name: Numbers.of(each) for name, each in packed.items() if isinstance(each, np.ndarray)}
        return cls(**packed)

    def steps(self) -> Steps:
        fields: dict[str, Any] = asdict(self)
        fields |= {name: each.values() for name, each in fields.items() if isinstance(each, Numbers)}
        return Steps(**fields)


class PlaceSummary(Struct, frozen=True):
    """One place. `pieces`: by part, starts and ends in turn; `split` and what follows it are of its window."""

    rank: int
    device: int | None
    info: Device
    window: Numbers
    steps: StepEdges
    pieces: Mapping[str, Numbers]
    communication: Numbers
    numbers: Mapping[str, Numbers]
    texts: Mapping[str, Words]
    split: TimeSplit
    kernels: tuple[Kernel, ...]
    kernel_time_ns: int
    messages: Numbers
    spare_ns: int | None
    sooner_ns: int | None


class PackedRows(Struct, frozen=True):
    """The columns of a frame of few rows; none where it has no rows."""

    columns: Mapping[str, tuple[int | float | str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: Frame) -> PackedRows:
        columns = frame.columns.items() if len(frame) else ()
        return cls({name: tuple(each if isinstance(each, Text) else each.tolist()) for name, each in columns})

    def frame(self, signal: str, ranks: Mapping[int, int]) -> Frame:
        """The frame of this signal again, its ranks by their numbers in the job."""
        if not self.columns:
            return Frame.empty(signal)
        kinds, rank = SIGNALS[signal].columns, np.array(self.columns["rank"], np.int64).tolist()
        columns: dict[str, Column] = {
            name: Text.of([*map(str, values)]) if kinds[name] is str else np.array(values, kinds[name])
            for name, values in self.columns.items()
        }
        return Frame({**columns, "rank": np.array([ranks.get(each, each) for each in rank], np.int64)})


class FileHead(Struct, frozen=True):
    """What of one file's Timeline concerns the job, without its places.

    `processors`: what each process used of the processor. `extent_ns`: from the first to the last row. `is_alone`:
    there is no recording behind the summary.
    """

    sources: tuple[Source, ...]
    ranks: tuple[int, ...]
    world_size: int
    recorded: tuple[str, ...]
    notes: tuple[str, ...]
    memory: tuple[MemoryUse, ...] = ()
    processors: PackedRows = field(default_factory=PackedRows)
    extent_ns: tuple[int, int] | None = None
    epoch_ns: int | None = None
    is_alone: bool = False


class FileSummary(FileHead, frozen=True):
    """The summary of one file: what concerns the job, and its places."""

    places: tuple[PlaceSummary, ...] = ()


# --- from a timeline -------------------------------------------------------------------------------------------------


def packed_summary(timeline: Timeline, selection: Selection) -> bytes:
    """The summary of one file's timeline, at most `MOST_BYTES`.

    Raises UsageError as `prepare` does where the selected part is not in it.
    """
    run = prepare(timeline, selection)
    whole = FileSummary(
        sources=timeline.sources,
        ranks=timeline.ranks,
        world_size=timeline.world_size,
        recorded=tuple(sorted(timeline.recorded)),
        notes=timeline.notes,
        memory=tuple(replace(use, holders=()) for use in memory_uses(timeline)),
        processors=PackedRows.of(timeline["cpu_processes"]),
        extent_ns=extent(timeline),
        epoch_ns=timeline.epoch_ns,
    )
    packed = b""
    for every in _THINNING:
        packed = pack(replace(whole, places=tuple(_summary(place, every) for place in run.places)))
        if len(packed) <= MOST_BYTES:
            break
    return packed


def pack(summary: FileSummary) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(summary), 1)


def unpack(packed: bytes) -> FileSummary:
    return msgspec.msgpack.decode(unzipped(packed), type=FileSummary)


def unpack_head(packed: bytes) -> FileHead:
    return msgspec.msgpack.decode(unzipped(packed), type=FileHead)


def without_recording(packed: bytes) -> bytes:
    """The same summary where there is no recording behind it."""
    return pack(replace(unpack(packed), is_alone=True))


def checked(packed: bytes, name: str) -> bytes:
    """The packed summary of the file of this name again. Raises PerfdoctorError where it is damaged."""
    try:
        summary = unpack(packed)
        _check_head(summary)
        for place in summary.places:
            _check(place)
    except (zlib.error, msgspec.DecodeError, ValueError, LookupError, OverflowError, AssertionError) as error:
        raise PerfdoctorError(
            f"the summary {name} is damaged, or was made by another version of perfdoctor",
            do="Summarize the recording again, with the version that analyses it.",
        ) from error
    return packed


def _check_head(summary: FileSummary) -> None:
    """Raises ValueError, LookupError, OverflowError or AssertionError for what no file's summary holds."""
    places = [(place.rank, place.device) for place in summary.places]
    named = {*(rank for rank, _ in places), *(use.rank for use in summary.memory)}
    if not named <= set(summary.ranks) or len(set(summary.ranks)) < max(len(summary.ranks), 1):
        raise ValueError("ranks of another file")
    if len(set(places)) < len(places) or not set(summary.recorded) <= set(SIGNALS):
        raise ValueError("places of the same device, or signals that there are not")
    check_frame("cpu_processes", summary.processors.frame("cpu_processes", {}))


def _check(place: PlaceSummary) -> None:
    """Raises ValueError, LookupError or AssertionError for what no place has: the file may have been changed."""
    window = intervals(place.window)
    for pieces in (window, intervals(place.communication), *map(intervals, place.pieces.values())):
        edges = np.stack((pieces.starts, pieces.ends), axis=1).ravel()
        if edges.size and not (np.diff(edges) >= 0).all():
            raise ValueError("pieces of time that are not in order")
    of = place.split
    if not window or not set(of.idle_causes_ns) <= set(IDLE_CAUSES):
        raise ValueError("no time at all, or causes of idle time that there are not")
    parts = (of.compute_ns, of.exposed_communication_ns, of.exposed_copy_ns, of.idle_ns, *of.idle_causes_ns.values())
    communication = (of.hidden_communication_ns, of.exposed_communication_ns)
    others = (*communication, of.copy_ns, of.kernel_count, place.kernel_time_ns)
    by_name = (of.compute_by_family_ns, of.matmul_ns_by_math_path, of.compute_by_phase_ns)
    least_ns = min(ns for each in (*by_name, {"": 0}) for ns in each.values())
    sums = (sum(parts[:4]), sum(parts[4:]), sum(communication))
    if min(*parts, *others, least_ns) < 0 or sums != (of.window_ns, of.idle_ns, of.communication_ns):
        raise ValueError("parts that do not sum to their window")
    steps = place.steps.steps()
    if not 0 <= steps.first <= steps.last <= max(len(steps.bounds) - 1, 0) or (np.diff(steps.bounds) < 0).any():
        raise ValueError("steps that are not in order")
    rows = collectives(place, place.rank, UnpackedColumns())
    check_frame("collectives", rows)
    messages = place.messages.values()
    if messages.size and not 0 <= messages.min() <= messages.max() < np.count_nonzero(touches(rows, window)):
        raise ValueError("messages that are no collectives")


def _summary(place: Place, every: int) -> PlaceSummary:
    arrived = place.recorded_collectives
    return PlaceSummary(
        rank=place.rank,
        device=place.device,
        info=place.info,
        window=interleaved(place.window),
        steps=StepEdges.of(place.steps),
        pieces={part: interleaved(pieces) for part, pieces in moved_together(place, every).items() if pieces},
        communication=interleaved(place.communication),
        numbers={
            "start_ns": Numbers.of(arrived.start_ns),
            "took_ns": Numbers.of(arrived.duration_ns),
            **{name: Numbers.of(arrived[name]) for name in _NUMBERS},
        },
        texts={name: Words.of(arrived.text(name)) for name in _TEXTS},
        split=split(place),
        kernels=_kernels(place),
        kernel_time_ns=kernel_time_ns(place),
        messages=Numbers.of(np.flatnonzero(proven_messages(place))),
        spare_ns=spare_ns(place),
        sooner_ns=sooner_ns(place),
    )


def _kernels(place: Place) -> tuple[Kernel, ...]:
    """The kernels that take most of the time."""
    medians = sorted(medians_of(place).items(), key=lambda each: -each[1][0] * each[1][1])[:_MOST_KERNELS]
    return tuple(Kernel(name, blocks, per_step, ns) for (name, blocks), (per_step, ns) in medians)


def moved_together(place: Place, every: int = 1) -> dict[str, Intervals]:
    """Each part of the window in as few pieces as possible: between two edges, one piece a part, one behind another.

    Edges are those of communication, exposed or not, and of steps. From any of them to any other a part takes exactly
    what it takes on the place itself. `every`: of edges inside steps, only each so many-th.
    """
    steps = place.steps
    bounds = steps.bounds[steps.first : steps.last + 1] if steps.used else place.window.starts
    fixed = np.concatenate((place.window.starts, place.window.ends, steps.even_bounds, bounds))
    inside = np.concatenate(
        [edge for pieces in (place.communication, place.exposed_communication) for edge in (pieces.starts, pieces.ends)]
    )
    edges = np.union1d(fixed, np.unique(inside)[::every])
    begun = edges[:-1].copy()
    moved = {}
    for part, pieces in place.parts.items():
        ended = begun + pieces.overlap_ns(edges[:-1], edges[1:])
        moved[part] = Intervals.of(begun, ended)
        begun = ended
    return moved


def interleaved(pieces: Intervals) -> Numbers:
    return Numbers.of(np.stack((pieces.starts, pieces.ends), axis=1).ravel())


# --- and back --------------------------------------------------------------------------------------------------------


NOWHERE = Intervals.empty()


def intervals(packed: Numbers) -> Intervals:
    if not packed.count:
        return NOWHERE
    starts, ends = np.ascontiguousarray(packed.values().reshape(-1, 2).T)
    return Intervals(starts, ends)


def collectives(summary: PlaceSummary, rank: int, columns: UnpackedColumns) -> Frame:
    """The frame of the place's collectives, of the whole recording; what a summary does not hold is unknown."""
    start, took = summary.numbers["start_ns"].values(), summary.numbers["took_ns"].values()
    count = start.size
    known: dict[str, Column] = {
        **{name: packed.text(columns) for name, packed in summary.texts.items()},
        **{name: columns.values(summary.numbers[name]) for name in _NUMBERS},
        "start_ns": start,
        "end_ns": start + took,
        "rank": constant(rank, count),
        "device": constant(-1 if summary.device is None else summary.device, count),
    }
    unknown, no_text = constant(-1, count), Text(columns.codes(Numbers(0, 0, bytes(max(count - 1, 0)), count)), [""])
    declared: Sequence[tuple[str, type]] = tuple(SIGNALS["collectives"].columns.items())
    return Frame({name: known.get(name, no_text if kind is str else unknown) for name, kind in declared})

"""What do the summaries of all ranks show together? They become a Job, for rules about several ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.split import split
from perfdoctor.metrics.communication.collectives import proven_messages
from perfdoctor.metrics.host.pace import sooner_ns, spare_ns
from perfdoctor.metrics.kernels.same_kernels import kernel_time_ns, medians_of
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.model.cache import Keeps
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.packed_columns import UnpackedColumns
from perfdoctor.model.place import JobPlace, touches
from perfdoctor.model.run import Job, Selection
from perfdoctor.model.timeline import Device, Frame, Source, Timeline
from perfdoctor.readers import unrelated
from perfdoctor.readers.leaving_out import left_out
from perfdoctor.readers.open import RankSource, own_ranks
from perfdoctor.records.memory import MemoryUse
from perfdoctor.scale.summary import (
    NOWHERE,
    FileHead,
    PlaceSummary,
    collectives,
    intervals,
    unpack,
    unpack_head,
)
from perfdoctor.vocabulary.parts import IDLE_CAUSES
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS

if TYPE_CHECKING:
    from perfdoctor.system.remote import RemoteFile


class ReadJob(Struct, frozen=True):
    """All ranks of a job by their summaries. `numbers`: of each file its ranks that have another number in the job.

    `sources`: what was read of all ranks, with their numbers in the job. `file_of`: where each rank is from, as a
    place in the files given. `processors`: of all ranks, what each used of the processor. `clocks`: of each run
    folder the extent of all its ranks and the epoch, in ns. `remarked`: the files of which their readers noted
    something, by name. `alone`: ranks of which there is a summary and no recording. `notes`: what could not be
    read.
    """

    summaries: Job[JobPlace]
    sources: tuple[Source, ...]
    file_of: Mapping[int, int]
    numbers: Mapping[int, Mapping[int, int]]
    memory: Sequence[MemoryUse]
    processors: Frame
    clocks: Mapping[Path, tuple[tuple[int, int] | None, int | None]]
    remarked: Mapping[int, str]
    notes: tuple[str, ...]
    alone: frozenset[int] = frozenset()

    def with_timeline(self, known: Timeline) -> Job[JobPlace]:
        """The summaries, with what was recorded of its machines and what the user gave.

        What was read, which GPUs there are and what memory they used is asked of its timeline, too.
        """
        frames = {signal: known[signal] for signal in MACHINE_SIGNALS} | {"cpu_processes": self.processors}
        job = _timeline(self.summaries.timeline.devices, self.summaries.timeline.world_size, known.recorded, frames)
        beside = tuple(source for source in known.sources if source not in self.sources)
        job = replace(
            job, user_values=known.user_values, steps_marked_by=known.steps_marked_by,
            sources=(*self.sources, *beside), devices=self._devices(known),
        )  # fmt: skip
        in_full = {(use.rank, use.device): use for use in memory_uses(known)}
        uses = {(use.rank, use.device): use for use in self.memory} | in_full
        _keep(job, memory_uses, tuple(uses[place] for place in sorted(uses)))
        return Job(job, self.summaries.places, self.summaries.selection)

    def _devices(self, known: Timeline) -> tuple[Device, ...]:
        """The GPU of each place, those of which nothing but a name is known, and one without a number for others."""
        found = {(each.rank, each.device): each for each in known.devices}
        found |= {(each.rank, each.device): each.info for each in self.summaries.places if each.device is not None}
        named = {rank for rank, _ in found}
        return (*found.values(), *(each for each in self.summaries.timeline.devices if each.rank not in named))


def job_of(
    files: Sequence[RankSource | RemoteFile], packed: Sequence[bytes | Exception], selection: Selection
) -> ReadJob:
    """The job of these files: their packed summaries, in order, or why there is none.

    Raises the first error where no file could be read.
    """
    read = {number: unpack_head(each) for number, each in enumerate(packed) if isinstance(each, bytes)}
    errors = [(file, each) for file, each in zip(files, packed, strict=True) if isinstance(each, Exception)]
    if not read:
        raise errors[0][1]
    read, earlier = _newest(files, read)
    numbers = _numbers(files, read)
    recorded = frozenset(signal for summary in read.values() for signal in summary.recorded)
    devices, sources, memory, file_of, processors = [], [], [], {}, [Frame.empty("cpu_processes")]
    for number, summary in read.items():
        new = numbers[number]
        file_of.update({new.get(rank, rank): number for rank in summary.ranks})
        sources += [replace(s, ranks=tuple(new.get(rank, rank) for rank in s.ranks)) for s in summary.sources]
        memory += [replace(use, rank=new.get(use.rank, use.rank)) for use in summary.memory]
        devices += [Device(new.get(rank, rank), -1) for rank in summary.ranks]
        processors += [summary.processors.frame("cpu_processes", new)] if summary.processors.columns else []
    world_size = max(summary.world_size for summary in read.values())
    timeline = _timeline(tuple(devices), world_size, recorded, {})
    summaries = [(each, numbers[number]) for number in read if isinstance(each := packed[number], bytes)]
    return ReadJob(
        Job(timeline, _places(summaries, timeline), selection),
        tuple(sources),
        file_of,
        numbers,
        memory,
        Frame.join(processors),
        _clocks(files, read),
        {number: files[number].name for number, summary in read.items() if summary.notes},
        (
            *unrelated.notes([_facts(each) for each in read.values()]),
            *earlier,
            *left_out([_why(file, error) for file, error in errors], len(files)),
        ),
        frozenset(rank for rank, number in file_of.items() if read[number].is_alone),
    )


def _newest(
    files: Sequence[RankSource | RemoteFile], read: Mapping[int, FileHead]
) -> tuple[dict[int, FileHead], list[str]]:
    """What was read without files that were recorded before others of the same ranks, and a note on those."""
    alone = [number for number in read if _folder(files[number]) is None]
    paths = [
        file.file if isinstance(file := files[number], RankSource) else PurePosixPath(file.below) for number in alone
    ]
    left_out, notes = unrelated.earlier(paths, [_facts(read[number]) for number in alone])
    before = {alone[at] for at in left_out}
    return {number: each for number, each in read.items() if number not in before}, notes


def _facts(summary: FileHead) -> unrelated.RecordingFacts:
    return unrelated.RecordingFacts(summary.sources, summary.world_size, summary.extent_ns, summary.epoch_ns)


def _places(packed: Iterable[tuple[bytes, Mapping[int, int]]], timeline: Timeline) -> tuple[JobPlace, ...]:
    """The places of each packed summary, by rank, and of the ranks in it that get another number.

    One after the other: what is unpacked of thousands of files at once would take more memory than their places.
    """
    columns = UnpackedColumns()
    found = [
        reduced_place(place, new.get(place.rank, place.rank), timeline, columns)
        for each, new in packed
        for place in unpack(each).places
    ]
    return tuple(sorted(found, key=lambda place: (place.rank, -1 if place.device is None else place.device)))


def _numbers(files: Sequence[RankSource | RemoteFile], read: Mapping[int, FileHead]) -> dict[int, Mapping[int, int]]:
    """Which ranks of each file get another number: files of one run folder know each other's, as when read in full."""
    together: dict[object, list[int]] = {}
    for number in read:
        folder = _folder(files[number])
        together.setdefault(number if folder is None else folder, []).append(number)
    given = own_ranks([sorted({rank for each in own for rank in read[each].ranks}) for own in together.values()])
    return {number: new for own, new in zip(together.values(), given, strict=True) for number in own}


def _folder(file: RankSource | RemoteFile) -> Path | None:
    return file.part.run.path if isinstance(file, RankSource) and file.part else None


def _clocks(
    files: Sequence[RankSource | RemoteFile], read: Mapping[int, FileHead]
) -> dict[Path, tuple[tuple[int, int] | None, int | None]]:
    found: dict[Path, tuple[tuple[int, int] | None, int | None]] = {}
    for number, summary in read.items():
        folder, own = _folder(files[number]), summary.extent_ns
        if folder is not None and own is not None:
            before = found.get(folder, (own, None))[0] or own
            found[folder] = (min(before[0], own[0]), max(before[1], own[1])), summary.epoch_ns
    return found


def _timeline(
    devices: tuple[Device, ...], world_size: int, recorded: frozenset[str], known: Mapping[str, Frame]
) -> Timeline:
    """A timeline with the `known` frames, without rows of ranks: `timeline.kernels` and the like raise KeyError."""
    frames = {signal: known.get(signal, Frame.empty(signal)) for signal in (*MACHINE_SIGNALS, "cpu_processes")}
    return Timeline(frames, recorded, devices=devices, world_size=world_size)


def _why(file: RankSource | RemoteFile, error: Exception) -> str:
    if not isinstance(error, PerfdoctorError):
        return f"{file.name}: {error}"
    folder = _folder(file)  # of each machine, and so are equal names in them
    return f"{folder.name}: {error.what}" if folder else error.what


class ReducedPlace(JobPlace, frozen=True, dict=True):
    """One rank by its summary: a place that answers what rules about several ranks ask.

    Its window, steps and collectives are those of the rank. Each part of its window is exact between any two edges of
    its communication and steps; inside, it stands in one piece. Copies beside compute are left out. Results of
    functions that are `kept_in_summaries` (`model/cache.py`) were worked out when the rank was read.

    `pieces`: each part of the window; parts that it lacks took no time. `arrived`: the collectives of the whole
    recording.
    """

    info: Device = field(default_factory=lambda: Device(0, 0))
    pieces: Mapping[str, Intervals] = field(default_factory=dict)
    communication: Intervals = field(default_factory=Intervals.empty)
    arrived: Frame = field(default_factory=lambda: Frame.empty("collectives"))

    @property
    def recorded_collectives(self) -> Frame:
        return self.arrived

    @cached_property
    def collectives(self) -> Frame:
        return self.arrived.take(touches(self.arrived, self.window))

    def _part(self, name: str) -> Intervals:
        return self.pieces.get(name, NOWHERE)

    @property
    def compute(self) -> Intervals:
        return self._part("compute")

    @property
    def exposed_communication(self) -> Intervals:
        return self._part("exposed_communication")

    @property
    def exposed_copies(self) -> Intervals:
        return self._part("exposed_copy")

    @cached_property
    def idle(self) -> Intervals:
        return self.window - (self.compute | self.exposed_communication | self.exposed_copies)

    @cached_property
    def idle_causes(self) -> Mapping[str, Intervals]:
        return {cause: self._part(cause) for cause in IDLE_CAUSES}


def reduced_place(summary: PlaceSummary, rank: int, timeline: Timeline, columns: UnpackedColumns) -> ReducedPlace:
    """The place of one summary. `rank`: its number in the job; `timeline`: what is known of the job beside places.

    `columns`: those of other places of the job.
    """
    place = ReducedPlace(
        timeline,
        rank,
        summary.device,
        intervals(summary.window),
        summary.steps.steps(),
        replace(summary.info, rank=rank),
        {part: intervals(pieces) for part, pieces in summary.pieces.items() if pieces.count},
        intervals(summary.communication),
        collectives(summary, rank, columns),
    )
    _keep(place, split, replace(summary.split, rank=rank))
    _keep(place, spare_ns, summary.spare_ns)
    _keep(place, sooner_ns, summary.sooner_ns)
    _keep(place, kernel_time_ns, summary.kernel_time_ns)
    messages = np.zeros(len(place.collectives), dtype=bool)
    messages[summary.messages.values()] = True
    _keep(place, proven_messages, messages)
    _keep(place, medians_of, {(each.name, each.blocks): (each.per_step, each.median_ns) for each in summary.kernels})
    return place


def _keep(subject: Keeps, function: Callable[[Any], Any], result: object) -> None:
    """Let `function(subject)` return this result from now on."""
    subject.kept[function.__wrapped__, ((), ())] = result  # type: ignore[attr-defined]

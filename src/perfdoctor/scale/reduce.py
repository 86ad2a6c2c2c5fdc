"""What do the summaries of all ranks show together? They become a Run, for rules about several ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.errors import PerfdoctorError
from perfdoctor.late import dataclass
from perfdoctor.model.run import Run
from perfdoctor.model.selection import Selection
from perfdoctor.model.timeline import Device, Frame, Timeline, UserValues
from perfdoctor.readers.open import own_ranks
from perfdoctor.records.memory import MemoryUse
from perfdoctor.scale.reduced_place import reduced_place
from perfdoctor.scale.summary import FileSummary, unpack
from perfdoctor.vocabulary.signals import MACHINE_SIGNALS

if TYPE_CHECKING:
    from perfdoctor.system.remote import RemoteFile

#: So many files are named in a note; of the others their number is said.
_NAMED = 4


@dataclass(frozen=True)
class Job:
    """All ranks of a job by their summaries. `numbers`: by file, its ranks that have another number in the job.

    `file_of`: where each rank is from. `notes`: what could not be read, and in which files something was repaired.
    """

    run: Run
    file_of: Mapping[int, Path | RemoteFile]
    numbers: Mapping[Path | RemoteFile, Mapping[int, int]]
    memory: Sequence[MemoryUse]
    notes: tuple[str, ...]

    def with_timeline(self, known: Timeline) -> Run:
        """The run, with what was recorded of its machines and what the user gave."""
        machine = {signal: known[signal] for signal in MACHINE_SIGNALS}
        return Run(
            _timeline(
                self.run.timeline.devices, self.run.timeline.world_size, known.recorded, machine, known.user_values
            ),
            self.run.places,
            self.run.selection,
        )


def job_of(files: Sequence[Path | RemoteFile], packed: Sequence[bytes | Exception], selection: Selection) -> Job:
    """The job of these files: their packed summaries, in order, or why there is none.

    Raises the first error where no file could be read.
    """
    read = [(file, unpack(each)) for file, each in zip(files, packed, strict=True) if isinstance(each, bytes)]
    errors = [(file, each) for file, each in zip(files, packed, strict=True) if isinstance(each, Exception)]
    if not read:
        raise errors[0][1]
    numbers = own_ranks([summary.ranks for _, summary in read])
    recorded = frozenset(signal for _, summary in read for signal in summary.recorded)
    devices, places, memory, file_of = [], [], [], {}
    for (file, summary), new in zip(read, numbers, strict=True):
        file_of.update({new.get(rank, rank): file for rank in summary.ranks})
        memory += [(new.get(use.rank, use.rank), use) for use in summary.memory]
        devices += [Device(new.get(rank, rank), -1) for rank in summary.ranks]
        places += [(new.get(place.rank, place.rank), place) for place in summary.places]
    world_size = max(summary.world_size for _, summary in read)
    timeline = _timeline(tuple(devices), world_size, recorded, {}, UserValues())
    places.sort(key=lambda each: (each[0], -1 if each[1].device is None else each[1].device))
    return Job(
        Run(timeline, tuple(reduced_place(place, rank, timeline) for rank, place in places), selection),
        file_of,
        {file: new for (file, _), new in zip(read, numbers, strict=True)},
        [use for _, use in memory],
        (*_of_errors(errors, len(files)), *_of_repairs([summary for _, summary in read])),
    )


def _timeline(
    devices: tuple[Device, ...],
    world_size: int,
    recorded: frozenset[str],
    machine: Mapping[str, Frame],
    user_values: UserValues,
) -> Timeline:
    """A timeline without rows of ranks: who asks it for kernels, calls or ops gets a KeyError."""
    frames = {signal: machine.get(signal, Frame.empty(signal)) for signal in MACHINE_SIGNALS}
    return Timeline(frames, recorded, devices=devices, world_size=world_size, user_values=user_values)


def _of_errors(errors: Sequence[tuple[Path | RemoteFile, Exception]], files: int) -> list[str]:
    said = [error.what if isinstance(error, PerfdoctorError) else f"{file.name}: {error}" for file, error in errors]
    more = f"; and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    were = "was" if len(said) == 1 else "were"
    return [f"{len(said)} of {files} files {were} left out: {'; '.join(said[:_NAMED])}{more}."] if said else []


def _of_repairs(summaries: Sequence[FileSummary]) -> list[str]:
    """The readers' own notes are shown for files that are read in full; of all others only that there are some."""
    noted = [summary.sources[0].file for summary in summaries if summary.notes]
    if not noted:
        return []
    names = ", ".join(noted[:_NAMED]) + (" and others" if len(noted) > _NAMED else "")
    return [f"{len(noted)} of {len(summaries)} files were read with remarks ({names}): analyse one alone to see them."]

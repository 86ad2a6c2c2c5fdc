"""What does a node leave of its ranks, so that the job is diagnosed where none of their recordings is?

Of every recording its summary; of those ranks that stand out among the node's, and of the one that stands for the
others, the whole Timeline behind it; of the machine what was recorded beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.run import WHOLE_RECORDING
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import packed, recorded_run
from perfdoctor.readers.open import RankSource, read, read_file, recordings, sides
from perfdoctor.scale.in_full import ranks_in_full
from perfdoctor.scale.read import summaries
from perfdoctor.scale.reduce import job_of
from perfdoctor.scale.summary import without_recording
from perfdoctor.system.progress import Progress, silent


class Left(Struct, frozen=True):
    """One file to keep. `is_whole`: it holds a rank's whole Timeline, too. `name`: another content has another one."""

    name: str
    content: bytes
    is_whole: bool = False

    @property
    def of_rank(self) -> bool:
        return self.name.endswith(packed.RANK_ENDING)


class LeftBehind(Struct, frozen=True):
    """What a node leaves. `notes`: which recordings could not be read."""

    files: tuple[Left, ...]
    notes: tuple[str, ...]


def left_of(paths: Sequence[Path], progress: Progress, process: int | None = None) -> LeftBehind:
    """What to keep of the recordings under these paths.

    Raises PerfdoctorError where none of them can be read.
    """
    found = recordings(paths, progress, process)
    if not found:
        read(paths, progress)  # says why
        raise PerfdoctorError("there is no rank in these files", do="Give the recordings of ranks, or their folder.")
    own = summaries(found, WHOLE_RECORDING, progress)
    job = job_of(found, own, WHOLE_RECORDING)
    whole = {job.file_of[rank] for rank in ranks_in_full(job.summaries, job.memory)}
    files = []
    for number, (source, summary) in enumerate(zip(found, own, strict=True)):
        if isinstance(summary, bytes):
            progress(f"Packing {source.name}")
            timeline = _timeline(source) if number in whole else None
            kept = summary if timeline else without_recording(summary)
            first = min((rank for rank, of in job.file_of.items() if of == number), default=0)
            files.append(_named(f"rank{first}", packed.RANK_ENDING, packed.of_rank(kept, timeline), timeline))
    node = f"node of rank {min(job.file_of)}"
    beside = [
        _named("beside", packed.MACHINE_ENDING, packed.of_machine(_of_node(side, node)))
        for side in sides(paths, progress)
    ]
    return LeftBehind((*files, *beside), job.notes)


def _timeline(source: RankSource) -> Timeline:
    return recorded_run.read_part(source.part) if source.part else read_file(source.file, silent)


def _of_node(side: Timeline, node: str) -> Timeline:
    """What was recorded beside the ranks, with the node in the names of its samples: each node has those of a GPU 0."""
    samples = side["device_samples"]
    named = samples.with_columns(name=samples.name.mapped(lambda name: f"{node}/{name}"))
    return side.with_frame("device_samples", named) if len(samples) else side


def _named(what: str, ending: str, content: bytes, whole: Timeline | None = None) -> Left:
    """The file, named after its content: nodes of a job write into one folder, each rank 0 of its own runs as well."""
    return Left(f"{what}-{blake2b(content, digest_size=5).hexdigest()}{ending}", content, whole is not None)


def written(left: LeftBehind, folder: str) -> Iterator[Left]:
    """Write the files into the folder, here or at an address, one after the other: each one that is written.

    Raises PerfdoctorError for the first that cannot be written.
    """
    from perfdoctor.system import remote  # noqa: PLC0415

    for file in left.files:
        remote.write(folder, file.name, file.content)
        yield file

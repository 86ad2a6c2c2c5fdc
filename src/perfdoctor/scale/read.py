"""How does a job of any number of ranks become a Run? All ranks in full where they fit, else some of them by summaries.

Each file becomes a summary by itself, in parallel; only summaries meet. Then those ranks are read in full that findings
speak of, and one for all others: rules about a single rank run on these, each counting for as many as it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.clocks import on_host_clock
from perfdoctor.model.run import WHOLE_RECORDING, Run, Selection
from perfdoctor.model.timeline import Timeline, UserValues
from perfdoctor.readers import packed, recorded_run
from perfdoctor.readers.leaving_out import NAMED
from perfdoctor.readers.open import Only, RankSource, read, read_file, recordings
from perfdoctor.readers.recorded_run import RecordedPart
from perfdoctor.system.memory import available_bytes
from perfdoctor.system.processors import worker_count
from perfdoctor.system.progress import Progress, ProgressText, silent

if TYPE_CHECKING:
    from perfdoctor.scale.reduce import ReadJob
    from perfdoctor.system.pool import ItemOutcome
    from perfdoctor.system.remote import RemoteFile

#: A file, or a part of a run, that a worker process can read.
Task = tuple["str | RecordedPart | RemoteFile", Selection]

_SUMMARISING = "Summarising"
#: So many files are always read in full: the GPUs of one machine.
FEWEST_IN_FULL = 8
#: More are not, even where they fit: findings are then of groups, nodes and the ranks that stand out, tables show those
#: alone, and of the rows that a replay may simulate too few are left for each rank.
MOST_IN_FULL = 64
#: A timeline takes about twice as many bytes as its trace has in plain text (docs/performance.md), and the diagnosis as
#: much again. Half of the memory is left to others.
_MEMORY_PER_BYTE = 4
_SHARE_OF_MEMORY = 0.5
#: What a worker process takes without a file: Python, numpy and this program.
_WORKER_BYTES = 60 << 20
_GZIP = b"\x1f\x8b"
#: A compressed file ends with so many bytes that hold the size of its text, modulo 4 GiB (RFC 1952).
_SIZE_FIELD = 4
#: Traces of torch.profiler become about so many times smaller: of a remote one only the size is known.
_GZIP_RATIO = 15


def read_run(
    paths: Sequence[Path | RemoteFile],
    progress: Progress,
    *,
    process: int | None = None,
    selection: Selection = WHOLE_RECORDING,
    user_values: UserValues | None = None,
    cluster: str | None = None,
    most_in_full: int | None = None,
) -> Run:
    """The recordings under these paths, prepared for rules. `most_in_full`: so many files are read in full at most;
    None: as many as fit into memory. `cluster`: a Dask cluster that summarises them, wherever there are two or more.
    Files that are remote are summarised where they are read, and only those that are shown in full are kept here.

    Raises PerfdoctorError as `readers.open.read` does; of many files those that cannot be read are left out.
    """
    here = [path for path in paths if isinstance(path, Path)]
    remote = [path for path in paths if not isinstance(path, Path)]
    found = recordings(here, progress, process)

    def known(timeline: Timeline) -> Timeline:
        return replace(timeline, user_values=user_values) if user_values else timeline

    some_left = any(_is_left(file, WHOLE_RECORDING) for file in found)  # other ranks of their nodes were not left whole
    if not remote and _fit(found, 1 if cluster else most_in_full) and not some_left:
        timeline = known(read(here, progress, process))
        progress("Analysing")
        return prepare(timeline, selection)
    return _reduced(here, [*found, *remote], progress, process, selection, cluster, known)


def _reduced(
    paths: Sequence[Path],
    files: Sequence[RankSource | RemoteFile],
    progress: Progress,
    process: int | None,
    selection: Selection,
    cluster: str | None,
    known: Callable[[Timeline], Timeline],
) -> Run:
    """The run of all ranks by summaries, and of some in full. `known`: adds what the user gave to a timeline."""
    from perfdoctor.scale.in_full import TYPICAL, ranks_in_full  # noqa: PLC0415 most analyses need none of this
    from perfdoctor.scale.reduce import job_of  # noqa: PLC0415

    found = summaries(files, selection, progress, cluster)
    instead = _other_passes(files, found, progress, process)
    found += summaries(instead, selection, progress, cluster) if instead else []
    files = [*files, *instead]
    progress("Comparing the ranks")
    job = job_of(files, found, selection)
    chosen = ranks_in_full(job.summaries, job.memory, job.alone)
    in_full = sorted({job.file_of[rank] for rank in chosen})
    kept = _kept([files[number] for number in in_full], progress)
    ranks = {path: job.numbers[number] for number, path in zip(in_full, kept, strict=True)}
    added = [path for number, path in zip(in_full, kept, strict=True) if not isinstance(files[number], RankSource)]
    if not chosen:
        raise PerfdoctorError(
            "of none of these ranks more than a summary is here",
            do="Give one of their recordings as well, or all that the nodes left.",
        )
    timeline = known(read([*paths, *added], progress, process, only=Only(ranks, job.clocks)))
    chosen = {rank: what for rank, what in chosen.items() if rank in timeline.ranks}  # a file may be gone by now
    timeline = timeline.with_notes(*job.notes, *_notes(job, chosen, in_full))
    progress("Analysing")
    return _with_job(prepare(timeline, selection), job, [rank for rank, what in chosen.items() if what == TYPICAL])


def _other_passes(
    files: Sequence[RankSource | RemoteFile],
    packed: Sequence[bytes | Exception],
    progress: Progress,
    process: int | None,
) -> list[RankSource]:
    """The recordings of torch.profiler of those runs whose export of nsys (in `files`) could not be read."""
    failed = [
        file.part
        for file, each in zip(files, packed, strict=True)
        if isinstance(each, Exception) and isinstance(file, RankSource) and file.part and file.part.export
    ]
    parts = (each for part in failed for each in recorded_run.parts(part.run, progress, process, ("torch",)))
    return [RankSource(part.file, part) for part in parts]


def _fit(files: Sequence[RankSource], most_in_full: int | None) -> bool:
    if most_in_full is not None:
        return len(files) <= most_in_full
    if len(files) <= FEWEST_IN_FULL:
        return True
    if sum(file.part.ranks if file.part else 1 for file in files) > MOST_IN_FULL:
        return False
    return _MEMORY_PER_BYTE * sum(map(_text_bytes, files)) <= _SHARE_OF_MEMORY * available_bytes()


def _kept(files: Sequence[RankSource | RemoteFile], progress: Progress) -> list[Path]:
    """The path of each of the files on this machine; remote ones are fetched."""
    remote = [file for file in files if not isinstance(file, RankSource)]
    here: Mapping[RemoteFile, Path] = {}
    if remote:
        from perfdoctor.system.remote import fetched  # noqa: PLC0415

        here = fetched(remote, progress)
    return [file.file if isinstance(file, RankSource) else here[file] for file in files]


def _text_bytes(file: RankSource | RemoteFile) -> int:
    """The size of what is read in bytes, of compressed traces as their ends say."""
    if isinstance(file, RankSource):
        return sum(map(_bytes_here, file.files))
    return file.size * (_GZIP_RATIO if file.name.endswith(".gz") else 1)


def _bytes_here(file: Path) -> int:
    try:
        if file.is_dir():  # of nsys's tables
            return sum(each.stat().st_size for each in file.iterdir())
        size = file.stat().st_size
        with file.open("rb") as stream:
            if size < _SIZE_FIELD or stream.read(len(_GZIP)) != _GZIP:
                return size
            stream.seek(-_SIZE_FIELD, 2)
            return max(size, int.from_bytes(stream.read(_SIZE_FIELD), "little"))
    except OSError:  # whoever reads it says so
        return 0


# --- summaries -------------------------------------------------------------------------------------------------------


def summarised(task: Task) -> bytes:
    """The packed summary of one file, or part of a run: a pure function, which a worker process can run."""
    from perfdoctor.scale.summary import packed_summary  # noqa: PLC0415

    file, selection = task
    if isinstance(file, str):
        return _summary_of(Path(file), selection)
    if isinstance(file, RecordedPart):
        return packed_summary(on_host_clock(recorded_run.read_part(file)), selection)
    from perfdoctor.system.remote import for_a_while  # noqa: PLC0415

    with for_a_while(file) as path:
        return _summary_of(path, selection)


def _summary_of(file: Path, selection: Selection) -> bytes:
    """The packed summary of one file, which may be all that it has."""
    from perfdoctor.scale.summary import checked, packed_summary  # noqa: PLC0415

    known = packed.summary(file)
    if known is not None and selection == WHOLE_RECORDING:
        return checked(known, file.name)
    return packed_summary(on_host_clock(read_file(file, silent)), selection)


def summaries(
    files: Sequence[RankSource | RemoteFile], selection: Selection, progress: Progress, cluster: str | None = None
) -> list[bytes | Exception]:
    """The packed summary of each file, or why there is none, in the order of `files`."""
    progress(ProgressText("Summarising the ranks", _SUMMARISING, 0, len(files), "files"))
    tasks: list[Task] = []
    for file in files:
        if isinstance(file, RankSource):
            tasks.append((file.part.for_a_worker() if file.part else str(file.file.absolute()), selection))
        else:
            tasks.append((file, selection))
    found: list[bytes | Exception] = [b""] * len(files)
    done = 0
    for chosen, where in _divided(files, selection, cluster):
        workers = _workers([files[number] for number in chosen], selection)
        for outcome in _outcomes([tasks[number] for number in chosen], workers, where, progress):
            file, done = files[number := chosen[outcome.index]], done + 1
            said = f"Summarised {file.name} ({done} of {len(files)})"
            progress(ProgressText(said, _SUMMARISING, done, len(files), "files"))
            found[number] = _left_out(file, outcome.error) if outcome.error else outcome.value()
    return found


def _divided(
    files: Sequence[RankSource | RemoteFile], selection: Selection, cluster: str | None
) -> Iterator[tuple[list[int], str | None]]:
    """Which of the files are summarised at once, and on which cluster. What a node left is sooner read than sent."""
    here = [cluster is None or _is_left(file, selection) for file in files]
    yield [number for number, is_here in enumerate(here) if is_here], None
    if not all(here):
        yield [number for number, is_here in enumerate(here) if not is_here], cluster


def _is_left(file: RankSource | RemoteFile, selection: Selection) -> bool:
    return selection == WHOLE_RECORDING and isinstance(file, RankSource) and packed.is_left(file.file)


def _outcomes(
    tasks: Sequence[Task], workers: int, cluster: str | None, progress: Progress
) -> Iterator[ItemOutcome[bytes]]:
    if cluster is None:
        from perfdoctor.system import pool  # noqa: PLC0415 most analyses need none of this

        return pool.each(summarised, tasks, workers=workers)
    from perfdoctor.scale import cluster as clusters  # noqa: PLC0415 Dask is an extra, and large

    return clusters.each(summarised, tasks, cluster, progress)


def _left_out(file: RankSource | RemoteFile, error: Exception) -> Exception:
    """Why a file is left out, as an error to show. Raises what is a bug of ours."""
    from perfdoctor.system import pool  # noqa: PLC0415

    if isinstance(error, pool.WorkerDiedError):
        return PerfdoctorError(f"{file.name} could not be read: {error.what}", do=error.do)
    if not isinstance(error, PerfdoctorError):
        raise error
    return error


def _workers(files: Sequence[RankSource | RemoteFile], selection: Selection) -> int:
    """One process a core, and no more than there is memory for the largest file in each; one for what nodes left."""
    files = [each for each in files if not _is_left(each, selection)]
    if not files:
        return 1
    fit = _SHARE_OF_MEMORY * available_bytes() / (_MEMORY_PER_BYTE * max(map(_text_bytes, files)) + _WORKER_BYTES)
    return max(min(worker_count(), int(fit)), 1)


# --- and some in full ------------------------------------------------------------------------------------------------


def _notes(job: ReadJob, chosen: Mapping[int, str], in_full: Collection[int]) -> Iterator[str]:
    """Sentences that say which ranks were read in full. `in_full`: the files that were."""
    others = sum(number in in_full for number in job.file_of.values()) - len(chosen)
    named = ", ".join(f"rank {rank} ({what})" for rank, what in sorted(chosen.items()))
    beside = f", and {others} more of the same files" if others else ""
    yield (
        f"Of {len(job.file_of):,} ranks each was read and reduced to a summary. What is said of several ranks, of "
        "steps and of where the time went is of all of them; what is said of kernels, of the host and of lines of "
        f"code is of those kept in full: {named}{beside}."
    )
    noted = [name for number, name in job.remarked.items() if number not in in_full]
    if noted:  # those of files that are read in full are shown
        names = ", ".join(noted[:NAMED]) + (" and others" if len(noted) > NAMED else "")
        files = "1 file was" if len(noted) == 1 else f"{len(noted):,} files were"
        yield f"{files} read with remarks ({names}): analyse one alone to see them."


def _with_job(run: Run, job: ReadJob, typical: Sequence[int]) -> Run:
    """The run with the summaries of the job: places of `typical` ranks count for all that were not read in full."""
    others = max(len(job.summaries.places) - len(run.places), 0)  # a changed file may hold more than its summary says
    standing = [place.rank in typical for place in run.places]
    each = others // max(sum(standing), 1)
    weights = tuple(1 + each * stands for stands in standing)
    return replace(run, summaries=job.with_timeline(run.timeline), stands_for=weights)

"""Which reader does a path need? Decided by the content, never by the name."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.model.timeline import Frame, Timeline, merge
from perfdoctor.patterns import regex
from perfdoctor.readers import (
    other_tools,
    plain_pickle,
    recorded_run,
    several_runs,
    side_files,
    stack_clock,
    stack_files,
    tensorboard,
    text_rows,
)
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.readers.leaving_out import readable, unopened
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.readers.torch_memory import profiler_timeline as memory_timeline
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.readers.torch_memory import snapshot_ranks
from perfdoctor.system.progress import Done, Progress, unheard
from perfdoctor.system.run_folder import RunFolder

#: Enough to recognise every format: a Kineto trace of a large job has long metadata in front of its events.
_HEAD_BYTES = 65_536
_FORMATS = (
    "Nsight Systems (.nsys-rep, .qdrep, .qdstrm, .sqlite), torch.profiler (.json, .json.gz), Nsight Compute"
    " (.ncu-rep, .csv), torch.cuda.memory (.pickle),"
    " NCCL (logs, tests, flight recorder) and nvidia-smi (samples, topo -m)"
)
#: Files of Nsight Compute: its report, and a printed table.
_PROFILES = ("ncu-report", "ncu-table")
#: `nvidia-smi` without a query, and `nvidia-smi -q`.
_NVIDIA_SMI_PAGE = regex(rb"^\| NVIDIA-SMI |^=+NVSMI LOG=+", re.MULTILINE)
#: Files of these kinds hold ranks, and are often named by their numbers.
_OF_RANKS = ("nsys", "report", "kineto")
_DIGITS = regex(r"\d+")
#: Snapshots of torch's allocator. Like profiles they are joined with the other recordings.
_SNAPSHOT = "snapshot"
#: torch.profiler's memory by purpose.
_PURPOSES = "memory-timeline"
#: Stacks that py-spy sampled, which describe what another file records.
_STACKS = "stacks"
#: Which file it is by its first bytes; the first one that says yes.
_KINDS: dict[str, Callable[[bytes], bool]] = {
    _STACKS: stack_files.looks_like,
    "nsys": lambda head: head.startswith(b"SQLite format 3\x00"),
    "report": nsys_export.is_report,
    "ncu-report": ncu.is_report,
    # Its header may stand behind pages of other text: in JSON, of which traces are, nobody looks for it.
    "ncu-table": lambda head: not text_rows.is_json(head) and ncu.is_table(head),
    _SNAPSHOT: memory_snapshot.looks_like,
    _PURPOSES: memory_timeline.looks_like,
    "kineto": kineto.looks_like,
}

#: Kinds as they are called outside of this module, where that is another word.
_CALLED = {"report": "nsys", "ncu-report": "ncu", "ncu-table": "ncu", _SNAPSHOT: "memory", _PURPOSES: "memory"}


class Recording(Struct, frozen=True):
    """What holds whole ranks and is read by itself: a file, or a `part` of what perfdoctor run recorded."""

    file: Path
    part: recorded_run.Part | None = None

    @property
    def name(self) -> str:
        return self.part.name if self.part else self.file.name

    @property
    def files(self) -> tuple[Path, ...]:
        return self.part.files if self.part else (self.file,)


class Only(Struct, frozen=True):
    """Of the `recordings` no others than these files. `ranks`: which numbers the ranks of each get in the job.

    `clocks`: of each run folder the extent and the epoch of all its ranks in ns, as `recorded_run.Chosen` has them.
    """

    ranks: Mapping[Path, Mapping[int, int]]
    clocks: Mapping[Path, tuple[tuple[int, int] | None, int | None]] = field(default_factory=dict)

    def of_run(self, run: RunFolder) -> recorded_run.Chosen:
        return recorded_run.Chosen(self.ranks, *self.clocks.get(run.path, (None, None)))


def read(
    paths: Sequence[Path], progress: Progress | None = None, process: int | None = None, only: Only | None = None
) -> Timeline:
    """One Timeline of all given files and folders: a folder, or several files, hold the ranks of one job.

    Profiles of Nsight Compute belong to all of them. `process`: which of several trainings that one command ran.
    Of several recordings one that cannot be read is left out with a note, unless it was named and is of no known kind.
    Raises PerfdoctorError where a path cannot be read, or holds nothing that perfdoctor can read.
    """
    progress = progress or (lambda _: None)
    named = [path for path in paths if path.is_file() and _is_profile(path)]
    others = [path for path in paths if path not in named]
    if runs := _runs(others):
        return _with_profiles(_of_runs(runs, progress, process, only), named, [], progress)
    if process is not None:
        raise UsageError(
            f"--process {process}: what was given is no folder of perfdoctor run",
            do="Leave out --process, or give the run folder alone: it knows which process wrote what.",
        )
    listed = [_files_and_notes(path) for path in others]
    files = [file for found, _ in listed for file in found]
    traces = [file for file in files if not _is_profile(file)]
    of_ranks = set(traces)
    beside = [file for file in files if file not in of_ranks]
    known = _recognised(traces)
    asked_for = [path for path in others if path in of_ranks and path not in known]
    traces = traces if only is None else list(only.ranks)
    found, notes = readable(traces, progress, lambda file, done: read_file(file, progress, done), asked_for)
    if only is None:
        timelines = _with_own_ranks(list(found.values()))
    else:
        timelines = [_renumbered(each, only.ranks[file]) for file, each in found.items()]
    whole = merge(timelines) if timelines else Timeline.build({}, ())
    whole = whole if only else _with_doubts(whole, found.values())
    older = (note for _, of_folder in listed for note in of_folder)
    return _with_profiles(whole.with_notes(*older, *notes), named, beside, progress)


def _with_doubts(whole: Timeline, parts: Collection[Timeline]) -> Timeline:
    """In front of all other notes, whether its parts belong together at all."""
    if len(parts) < 2:
        return whole
    from perfdoctor.readers import unrelated  # noqa: PLC0415 most recordings are alone

    found = unrelated.notes([
        unrelated.Known(each.sources, each.world_size, side_files.extent(each), each.epoch_ns) for each in parts
    ])  # fmt: skip
    return replace(whole, notes=(*found, *whole.notes)) if found else whole


def recordings(paths: Sequence[Path], progress: Progress, process: int | None = None) -> list[Recording]:
    """What is under these paths, in the order of `read`; nothing where one of them does not exist."""
    if not all(path.exists() for path in paths):
        return []
    others = [path for path in paths if path.is_dir() or not _is_profile(path)]
    if runs := _runs(others):
        parts = (part for run in runs for part in recorded_run.parts(run, progress, process))
        return [Recording(part.file, part) for part in parts]
    return [Recording(file) for path in others for file in _files_of(path) if not _is_profile(file)]


def _runs(paths: Sequence[Path]) -> list[RunFolder]:
    """The folders of perfdoctor run where all of the paths are such: of several machines each has its own."""
    runs = [run for path in paths if (run := RunFolder.open(path))]
    if len(runs) != len(paths):
        return []
    several_runs.refuse(runs)
    return runs


def _of_runs(runs: Sequence[RunFolder], progress: Progress, process: int | None, only: Only | None) -> Timeline:
    if only is None:
        of_runs = [_of_run(run, runs, recorded_run.read(run, progress, process)) for run in runs]
        return _with_doubts(merge(_with_own_ranks(of_runs)), of_runs)
    found = []
    for run in runs:
        numbers = {
            rank: number for file in only.ranks if run.path in file.parents for rank, number in only.ranks[file].items()
        }
        chosen = recorded_run.read(run, progress, process, only.of_run(run))
        found.append(_renumbered(_of_run(run, runs, chosen), numbers))
    return merge(found)


def _of_run(run: RunFolder, runs: Sequence[RunFolder], timeline: Timeline) -> Timeline:
    """Of several machines each has samples of a GPU 0, in files of one name: their folders differ."""
    samples = timeline["device_samples"]
    if len(runs) == 1 or not len(samples):
        return timeline
    named = samples.with_columns(name=samples.name.mapped(lambda name: f"{run.path.name}/{name}"))
    return replace(timeline, frames={**timeline.frames, "device_samples": named})


def _is_profile(file: Path) -> bool:
    try:
        return _kind_of_named(file) in (*_PROFILES, _SNAPSHOT, _PURPOSES, _STACKS, *side_files.KINDS)
    except PerfdoctorError:  # whoever reads it says so
        return False


def _kind_of_named(file: Path) -> str | None:
    """The kind of a file that the user named; a log of NCCL may be recognised only far behind its first bytes."""
    return _kind_of(file) or side_files.kind_of_file(file, _head(file))


def kind_of(file: Path) -> str | None:
    """What tool wrote a file, by its first bytes, as one word; None if it is no recording. Raises PerfdoctorError."""
    kind = _kind_of(file)
    if kind == "kineto" and not text_rows.is_json(_head(file)):  # a program that speaks of traces
        return None
    return _CALLED.get(kind, kind) if kind else None


def _kind_of(file: Path) -> str | None:
    """The kind of a file by its first bytes; None if unknown."""
    try:
        now = file.stat()
    except OSError:
        return _kind(_head(file))  # which says why
    return _kind_at(file, now.st_size, now.st_mtime_ns)


@lru_cache(maxsize=1 << 18)
def _kind_at(file: Path, _bytes: int, _changed_ns: int) -> str | None:
    """Asked several times of each file of a folder, which may hold a hundred thousand."""
    return _kind(_head(file))


def _with_profiles(timeline: Timeline, named: Sequence[Path], beside: Sequence[Path], progress: Progress) -> Timeline:
    """The timeline joined with profiles of Nsight Compute, memory snapshots and side files.

    An unreadable file that the user did not name (`beside`) costs only a note.
    """
    profiles, snapshots, sides, stacks, notes = [], [], [], [], []
    for file in (*named, *beside):
        progress(f"Reading {file.name}")
        try:
            kind = _kind_of_named(file)
            if kind == _SNAPSHOT:
                snapshots.append(memory_snapshot.read(file))
            elif kind == _PURPOSES:
                snapshots.append(memory_timeline.read(file))
            elif kind == _STACKS:
                if not timeline.sources and (alone := other_tools.refusal(file.name, _head(file))):
                    raise alone
                stacks.append(stack_files.read(file))
            elif kind in side_files.KINDS:
                sides.append(side_files.read(file, kind))
            else:
                profiles.append(ncu.read(file))
        except PerfdoctorError as error:
            if file in named or not timeline.sources:
                raise
            notes.append(f"{error.what}: {error.do}".replace("..", "."))
    timeline = ncu.with_profiles(timeline, profiles) if profiles else timeline
    timeline = side_files.joined(timeline, sides) if sides else timeline
    timeline = stack_clock.joined(timeline, stacks) if stacks else timeline
    return (snapshot_ranks.joined(timeline, snapshots) if snapshots else timeline).with_notes(*notes)


def holds_nsys(paths: Sequence[Path]) -> bool:
    """Is a recording of Nsight Systems under any of these paths?"""
    return any(_kind_of(file) in ("nsys", "report") for path in paths for file in _files_of(path))


def nsys_exports(paths: Sequence[Path], progress: Progress | None = None) -> list[tuple[str, Path | None, Path]]:
    """Every recording of Nsight Systems under these paths: its name, its report where there is one, its export."""
    found = []
    for file in (file for path in paths for file in _files_of(path)):
        kind = _kind_of(file)
        if kind == "nsys":
            beside = (file.with_suffix(suffix) for suffix in (".nsys-rep", ".qdrep"))
            found.append((file.name, next((report for report in beside if report.exists()), None), file))
        elif kind == "report":
            found.append((file.name, file, nsys_export.export(file, progress=progress, whole=True)))
    return found


def _files_of(path: Path) -> Iterator[Path]:
    yield from _files_and_notes(path)[0]


def _files_and_notes(path: Path) -> tuple[list[Path], list[str]]:
    """The recordings below a path, and which of them are left out because others are newer."""
    if not path.exists():
        raise PerfdoctorError(f"{path} does not exist", do="Check the path.")
    if not path.is_dir():
        return [path], []
    several_runs.refuse_below(path)
    kinds = _recognised(file for file in sorted(path.rglob("*")) if file.is_file() or _is_gone(file))
    found = list(kinds)
    # A report that lies beside its own export is one recording, not two.
    for report, exported in (("report", "nsys"), _PROFILES):
        exports = {file.with_suffix("") for file in found if kinds[file] == exported}
        found = [f for f in found if not (kinds[f] == report and (f.with_suffix("") in exports or f in exports))]
    if not found:
        has_diagnosis = (path / "diagnosis.json").is_file()
        do = (
            "Pass a recording: of the diagnosis.json in it only `analyze` and `compare` make use."
            if has_diagnosis
            else ""
        )
        raise PerfdoctorError(f"the folder {path} holds no recording", do=do or f"perfdoctor reads {_FORMATS}.")
    return tensorboard.newest(found, path)


def _recognised(files: Iterable[Path]) -> dict[Path, str | None]:
    """The kind of each recording among these files. None: it cannot be read, and is named as recordings of ranks are,
    or may not be opened.
    """
    kinds: dict[Path, str | None] = {}
    refused = set()
    for file in files:
        try:
            kinds[file] = _kind_of(file)
        except PerfdoctorError:  # noqa: PERF203 the others may be of use
            kinds[file] = None
            refused.add(file)
    of_ranks = {_numberless(file) for file, kind in kinds.items() if kind in _OF_RANKS}
    is_alone = not any(kinds.values())
    return {
        file: kind
        for file, kind in kinds.items()
        if kind or _numberless(file) in of_ranks or (is_alone and file in refused)
    }


def _is_gone(file: Path) -> bool:
    """Is it a link to what is not there, or removed just now?"""
    return not file.exists()


def _numberless(file: Path) -> tuple[Path, str]:
    return file.parent, _DIGITS.sub("#", file.name)


def _head(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise unopened(file, error) from error
    if head[:2] != b"\x1f\x8b":
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except (zlib.error, gzip.BadGzipFile):
        return b""


def kind_of_head(head: bytes) -> str | None:
    """The kind of a file that begins so, without compression: `nsys`, `kineto` …; None if unknown."""
    return _kind(head)


def _kind(head: bytes) -> str | None:
    known = (kind for kind, is_one in _KINDS.items() if is_one(head))
    return next(known, None) or side_files.kind_of(head)


def read_file(file: Path, progress: Progress, done: Done = unheard) -> Timeline:
    """One recording; a trace of torch.profiler says how many of its bytes are `done`.

    Raises PerfdoctorError where it cannot be read, or is none that perfdoctor knows.
    """
    head = _head(file)
    kind = _kind(head)
    if kind == "nsys":
        return nsys.read(file)
    if kind == "report":
        progress(f"Exporting {file.name} with nsys")
        exported = nsys.read(nsys_export.export(file))
        return replace(exported, sources=tuple(replace(source, file=file.name) for source in exported.sources))
    if file.stat().st_size == 0:
        raise PerfdoctorError(f"{file.name} is empty", do="Record again: the profiler wrote nothing.")
    if ncu.is_printed_text(head):
        raise PerfdoctorError(
            f"{file.name} is the text output of Nsight Compute, not a report or a table",
            do="Pass the .ncu-rep itself, or print it as a table: ncu --import report.ncu-rep --csv --page raw > k.csv",
        )
    if kind != "kineto" and (other := other_tools.refusal(file.name, head)):
        raise other
    # The Kineto reader has the best errors for other JSON and for a damaged gzip.
    if kind == "kineto" or head[:1] in (b"{", b"[", b"") or head.lstrip()[:1] in (b"{", b"["):
        return kineto.read(file, done=done)
    if _NVIDIA_SMI_PAGE.search(head):
        raise PerfdoctorError(
            f"{file.name} is the status page of nvidia-smi, not a table of samples",
            do="Sample while the training runs: nvidia-smi --query-gpu=timestamp,index,… --format=csv -lms 200",
        )
    if plain_pickle.is_pickle(head):
        raise PerfdoctorError(f"{file.name} is a pickle, but no memory snapshot", do=f"perfdoctor reads {_FORMATS}.")
    raise PerfdoctorError(f"{file.name} is no recording that perfdoctor knows", do=f"perfdoctor reads {_FORMATS}.")


def _with_own_ranks(timelines: list[Timeline]) -> list[Timeline]:
    """Files that have the same rank (or none) get the next free one, in the order given."""
    numbers = own_ranks([timeline.ranks for timeline in timelines])
    return [_renumbered(timeline, new) for timeline, new in zip(timelines, numbers, strict=True)]


def own_ranks(of_files: Sequence[Sequence[int]]) -> list[dict[int, int]]:
    """For each file the ranks in it that get another number, and which: where an earlier file has the same rank."""
    claimed = Counter(rank for ranks in of_files for rank in ranks)
    taken: set[int] = set()
    result = []
    free = iter(range(len(claimed) + sum(claimed.values()) + 1))
    for ranks in of_files:
        renumber: dict[int, int] = {}
        for rank in ranks:
            new = rank if rank not in taken else next(n for n in free if n not in taken and n not in claimed)
            taken.add(new)
            if new != rank:
                renumber[rank] = new
        result.append(renumber)
    return result


def _renumbered(timeline: Timeline, new: Mapping[int, int]) -> Timeline:
    if not new:
        return timeline

    def frame(old: Frame) -> Frame:
        rank = old["rank"].copy()
        for before, after in new.items():
            rank[old["rank"] == before] = after
        return old.with_columns(rank=rank.astype(np.int64))

    changes = ", ".join(
        f"rank {before} of {timeline.sources[0].file} is shown as rank {after}" for before, after in new.items()
    )
    return replace(
        timeline,
        frames={signal: frame(rows) for signal, rows in timeline.frames.items()},
        devices=tuple(replace(device, rank=new.get(device.rank, device.rank)) for device in timeline.devices),
        sources=tuple(replace(s, ranks=tuple(new.get(rank, rank) for rank in s.ranks)) for s in timeline.sources),
        notes=(*timeline.notes, f"Two recordings have the same rank: {changes}. Of two runs use perfdoctor compare."),
    )

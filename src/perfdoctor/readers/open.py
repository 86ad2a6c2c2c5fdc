"""How do files and folders become one Timeline? Each is read by its format (`formats`), and all are joined."""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError, UsageError
from perfdoctor.model.clocks import on_host_clock
from perfdoctor.model.timeline import Frame, Timeline, merge
from perfdoctor.patterns import regex
from perfdoctor.readers import (
    archive,
    formats,
    other_tools,
    plain_pickle,
    recorded_run,
    side_files,
    tensorboard,
    unrelated,
)
from perfdoctor.readers.formats import Format
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.readers.kineto.inflate import MAGIC
from perfdoctor.readers.leaving_out import readable
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.rank_names import rank_in
from perfdoctor.system.progress import Done, Progress, silent, unheard
from perfdoctor.system.run_folder import RunFolder

#: `nvidia-smi` without a query, and `nvidia-smi -q`.
_NVIDIA_SMI_PAGE = regex(rb"^\| NVIDIA-SMI |^=+NVSMI LOG=+", re.MULTILINE)
_DIGITS, _DIGITS_APART = regex(r"\d+"), regex(r"(\d+)")
#: Files of one size whose first bytes are equal may be copies.
_HEAD_BYTES = 4096
_PIECE_BYTES = 1 << 20
#: The end of a gzip file.
_TRAILER = struct.Struct("<II")


class RankSource(Struct, frozen=True):
    """What holds whole ranks and is read by itself: a file, or a `part` of what perfdoctor run recorded."""

    file: Path
    part: recorded_run.RecordedPart | None = None

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
    progress = progress or silent
    named = [path for path in paths if path.is_file() and _is_joined(path)]
    others = [path for path in paths if path not in named]
    if runs := _runs(others):
        return on_host_clock(_with_joined(_of_runs(runs, progress, process, only), named, [], progress))
    if process is not None:
        raise UsageError(
            f"--process {process}: what was given is no folder of perfdoctor run",
            do="Leave out --process, or give the run folder alone: it knows which process wrote what.",
        )
    listed = [_files_and_notes(path) for path in others]
    files = [file for found, _ in listed for file in found]
    traces = [file for file in files if not _is_joined(file)]
    of_ranks = set(traces)
    beside = [file for file in files if file not in of_ranks]
    known = _recognised(traces)
    asked_for = [path for path in others if path in of_ranks and path not in known]
    traces, copies = _without_copies(traces) if only is None else (list(only.ranks), [])
    found, notes = readable(traces, progress, lambda file, done: read_file(file, progress, done), asked_for)
    older = [note for _, of_folder in listed for note in of_folder]
    if only is None:
        parts, before = _newest(found)
        whole = _with_doubts(_merged(_with_own_ranks(parts)), parts)
        older += before
    else:
        whole = _merged(
            [_renumbered(each, only.ranks[file], are_known=_are_known(each)) for file, each in found.items()]
        )
    return on_host_clock(_with_joined(whole.with_notes(*older, *copies, *notes), named, beside, progress))


def _merged(timelines: Sequence[Timeline]) -> Timeline:
    return merge(timelines) if timelines else Timeline.build({}, ())


def _newest(found: Mapping[Path, Timeline]) -> tuple[list[Timeline], list[str]]:
    """The recordings without those made before others of the same ranks, and a note on what is left out."""
    left_out, notes = unrelated.earlier(list(found), [_facts(each) for each in found.values()])
    return [each for number, each in enumerate(found.values()) if number not in left_out], notes


def _without_copies(files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The files, each content once, and a note on every copy: a rank that is read twice would wait for itself.

    A file that lies there packed as well, as `gunzip -k` leaves both, is a copy.
    """
    alike: dict[tuple[int, bytes], list[Path]] = {}
    kept, notes = [], []
    sizes = {file: file.stat().st_size if file.is_file() else 0 for file in files}
    several = {size for size, count in Counter(sizes[file] for file in files).items() if size and count > 1}
    for file in files:
        size, packed = sizes[file], file.with_name(f"{file.name}.gz")
        known = alike.setdefault((size, _head(file)), []) if size in several else []
        original = next((each for each in known if filecmp.cmp(each, file, shallow=False)), None)
        if original is None and sizes.get(packed) and _is_packed(file, packed):
            original = packed
        if original is None:
            kept.append(file)
            known.append(file)
        else:
            is_same = file.resolve() == original.resolve()
            notes.append(
                f"{file.name} was given twice, and is read once."
                if is_same
                else f"{file.name} is left out: it is a copy of {original.name}."
            )
    return kept, notes


def _is_packed(file: Path, packed: Path) -> bool:
    """Does the gzip file `packed` hold the content of `file`? Its last bytes are sum and size of that (RFC 1952)."""
    with packed.open("rb") as stream:
        stream.seek(-min(_TRAILER.size, packed.stat().st_size), os.SEEK_END)
        trailer = stream.read()
    if len(trailer) < _TRAILER.size or not _head(packed).startswith(MAGIC):
        return False
    expected, size = _TRAILER.unpack(trailer)
    if size != file.stat().st_size % (1 << 32):
        return False
    found = 0
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            found = zlib.crc32(piece, found)
    return bool(found == expected)


def _head(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(_HEAD_BYTES)


def _with_doubts(whole: Timeline, parts: Collection[Timeline]) -> Timeline:
    """The whole with a note in front of all others where its parts do not belong together."""
    if len(parts) < 2:
        return whole
    found = unrelated.notes([_facts(each) for each in parts])
    return replace(whole, notes=(*found, *whole.notes)) if found else whole


def _facts(timeline: Timeline) -> unrelated.RecordingFacts:
    extent_ns = side_files.extent(timeline)
    return unrelated.RecordingFacts(timeline.sources, timeline.world_size, extent_ns, timeline.epoch_ns)


def recordings(paths: Sequence[Path], progress: Progress, process: int | None = None) -> list[RankSource]:
    """What is under these paths, in the order of `read`; nothing where one of them does not exist."""
    if not all(path.exists() for path in paths):
        return []
    others = [path for path in paths if path.is_dir() or not _is_joined(path)]
    if runs := _runs(others):
        parts = (part for run in runs for part in recorded_run.parts(run, progress, process))
        return [RankSource(part.file, part) for part in parts]
    files = [file for path in others for file in _files_and_notes(path)[0] if not _is_joined(file)]
    return [RankSource(file) for file in _without_copies(files)[0]]


def sides(paths: Sequence[Path], progress: Progress) -> list[Timeline]:
    """What was recorded beside the ranks under these paths: samples, NCCL's logs, topologies. Others are left out."""
    runs = [run for path in paths if (run := RunFolder.open(path))]
    of_runs = [file for run in runs for file in (*run.files("device", "*"), *run.files("nccl", "*"))]
    others = [path for path in paths if path not in {run.path for run in runs}]
    files = [*of_runs, *(file for path in others for file in _files_and_notes(path)[0])]
    found = []
    for file in files:
        with contextlib.suppress(PerfdoctorError):
            row = formats.of_named(file)
            if row and row.read and row.join is side_files.joined:
                progress(f"Reading {file.name}")
                found.append(row.read(file, progress, unheard))
    return found


def _runs(paths: Sequence[Path]) -> list[RunFolder]:
    """The folders of perfdoctor run where all of the paths are such: of several machines each has its own."""
    runs = [run for path in paths if (run := RunFolder.open(path))]
    if len(runs) != len(paths):
        return []
    unrelated.refuse(runs)
    return runs


def _of_runs(runs: Sequence[RunFolder], progress: Progress, process: int | None, only: Only | None) -> Timeline:
    if only is None:
        of_runs = [_of_run(run, runs, recorded_run.read(run, progress, process)) for run in runs]
        return _with_doubts(merge(_with_own_ranks(of_runs, are_reported=True)), of_runs)
    found = []
    for run in runs:
        numbers = {
            rank: number for file in only.ranks if run.path in file.parents for rank, number in only.ranks[file].items()
        }
        chosen = recorded_run.read(run, progress, process, only.of_run(run))
        found.append(_renumbered(_of_run(run, runs, chosen), numbers))
    return merge(found)


def _of_run(run: RunFolder, runs: Sequence[RunFolder], timeline: Timeline) -> Timeline:
    """The timeline, of several machines with its folder in the names of its samples: each has those of a GPU 0."""
    samples = timeline["device_samples"]
    if len(runs) == 1 or not len(samples):
        return timeline
    named = samples.with_columns(name=samples.name.mapped(lambda name: f"{run.path.name}/{name}"))
    return replace(timeline, frames={**timeline.frames, "device_samples": named})


def _is_joined(file: Path) -> bool:
    """Does the file join a recording, and hold no ranks of its own?"""
    try:
        row = formats.of_named(file)
    except PerfdoctorError:  # whoever reads it says so
        return False
    return row is not None and row.join is not None


def _with_joined(timeline: Timeline, given: Sequence[Path], beside: Sequence[Path], progress: Progress) -> Timeline:
    """The timeline joined with profiles of Nsight Compute, memory snapshots, stacks and side files.

    An unreadable file that the user did not name (`beside`) costs only a note.
    """
    found: dict[formats.Join, list[object]] = {}
    notes = []
    for file in (*given, *beside):
        progress(f"Reading {file.name}")
        try:
            row = formats.of_named(file)
            if row is None or row.read is None or row.join is None:  # it was changed just now
                continue
            refused = other_tools.refusal(file.name, formats.head_of(file)) if row.kind == "stacks" else None
            if refused and not timeline.sources:
                raise refused
            found.setdefault(row.join, []).append(row.read(file, progress, unheard))
        except PerfdoctorError as error:
            if file in given or not timeline.sources:
                raise
            notes.append(f"{error.what}: {error.do}".replace("..", "."))
    for join in formats.JOINS:
        timeline = join(timeline, found[join]) if join in found else timeline
    return timeline.with_notes(*notes)


def holds_nsys(paths: Sequence[Path]) -> bool:
    """Is a report of Nsight Systems or its SQLite export under any of these paths?"""
    return any(_kind(file) in ("nsys", "report") for path in paths for file in _files_and_notes(path)[0])


def nsys_exports(paths: Sequence[Path], progress: Progress) -> list[tuple[str, Path | None, Path]]:
    """Every such recording under these paths: its name, its report where there is one, its SQLite export."""
    found = []
    for file in (file for path in paths for file in _files_and_notes(path)[0]):
        kind = _kind(file)
        if kind == "nsys":
            beside = (file.with_suffix(suffix) for suffix in (".nsys-rep", ".qdrep"))
            found.append((file.name, next((report for report in beside if report.exists()), None), file))
        elif kind == "report":
            found.append((file.name, file, nsys_export.export(file, progress=progress, whole=True)))
    return found


def _kind(path: Path) -> str:
    row = formats.of(path)
    return row.kind if row else ""


def _files_and_notes(path: Path) -> tuple[list[Path], list[str]]:
    """The recordings below a path, and which of them are left out because others are newer."""
    if not path.exists():
        raise PerfdoctorError(f"{path} does not exist", do="Check the path.")
    if not path.is_dir() or formats.of(path):
        return [path], []
    unrelated.refuse_below(path)
    below = (  # a folder of tables is one recording
        file
        for file in sorted(path.rglob("*"), key=_in_order)
        if file.is_file() or not file.exists() or (file.is_dir() and formats.of(file))
    )
    found = _recognised(below)
    if not found:
        do = f"perfdoctor reads {formats.what_is_read()}."
        if (path / "diagnosis.json").is_file():
            do = "Pass a recording: of the diagnosis.json in it only `analyze` and `compare` make use."
        raise PerfdoctorError(f"the folder {path} holds no recording", do=do)
    return tensorboard.newest(_without_doubles(found), path)


def _in_order(file: Path) -> list[tuple[str | int, ...]]:
    """A key that sorts by name, folder by folder, and numbers in names by their size: `rank_2` before `rank_10`."""
    return [tuple(int(n) if n.isdecimal() else n for n in _DIGITS_APART.split(part)) for part in file.parts]


def _without_doubles(found: Mapping[Path, Format | None]) -> list[Path]:
    """The files without those that lie beside the same recording in a format that is preferred."""
    names: dict[str, set[Path]] = {}
    for file, row in found.items():
        names.setdefault(row.kind if row else "", set()).add(_plain_name(file, row))

    def is_double(file: Path, row: Format | None) -> bool:
        if row is None:
            return False
        preferred = set().union(*(names.get(kind, ()) for kind in formats.preferred_to(row)))
        return _plain_name(file, row) in preferred or file in preferred

    return [file for file, row in found.items() if not is_double(file, row)]


def _plain_name(file: Path, row: Format | None) -> Path:
    """The path of a file without the ending of its format, which is `row`."""
    if row is None or row.looks_like:
        return file.with_suffix("")
    return file.with_name(file.name.removesuffix(row.endings[0]))


def _recognised(files: Iterable[Path]) -> dict[Path, Format | None]:
    """The format of each recording among these files.

    None: it cannot be read, and is named as recordings of ranks are, or may not be opened.
    """
    found: dict[Path, Format | None] = {}
    refused = set()
    for file in files:
        try:
            found[file] = formats.of(file)
        except PerfdoctorError:  # noqa: PERF203 the others may be of use
            found[file] = None
            refused.add(file)
    of_ranks = {_numberless(file) for file, row in found.items() if row and row.join is None}
    is_alone = not any(found.values())
    return {
        file: row
        for file, row in found.items()
        if row or _numberless(file) in of_ranks or (is_alone and file in refused)
    }


def _numberless(file: Path) -> tuple[Path, str]:
    return file.parent, _DIGITS.sub("#", file.name)


def read_file(file: Path, progress: Progress, done: Done = unheard) -> Timeline:
    """One recording; a trace of torch.profiler says how many of its bytes are `done`.

    Raises PerfdoctorError where it cannot be read, or is none that perfdoctor knows.
    """
    row = formats.of(file)
    if row and row.unpack:
        with row.unpack(file) as folder:
            return _unpacked(file, folder, progress)
    found: Timeline
    if row and row.read and not row.looks_like:
        found = row.read(file, progress, done)
        return found
    head = formats.head_of(file)
    if file.stat().st_size == 0:
        raise PerfdoctorError(f"{file.name} is empty", do="Record again: the profiler wrote nothing.")
    if row and row.read and row.join is None:
        found = row.read(file, progress, done)
        return found
    if other := other_tools.refusal(file.name, head):
        raise other
    # The Kineto reader has the best errors for other JSON and for a damaged gzip.
    if head[:1] in (b"{", b"[", b"") or head.lstrip()[:1] in (b"{", b"["):
        return kineto.read(file, done)
    if _NVIDIA_SMI_PAGE.search(head):
        raise PerfdoctorError(
            f"{file.name} is the status page of nvidia-smi, not a table of samples",
            do="Sample while the training runs: nvidia-smi --query-gpu=timestamp,index,… --format=csv -lms 200",
        )
    if head.startswith(archive.MAGIC):
        raise archive.refusal(file)
    what = "a pickle, but no memory snapshot" if plain_pickle.is_pickle(head) else "no recording that perfdoctor knows"
    raise PerfdoctorError(f"{file.name} is {what}", do=f"perfdoctor reads {formats.what_is_read()}.")


def _unpacked(packed: Path, folder: Path, progress: Progress) -> Timeline:
    """All that was unpacked of the archive `packed`, as one recording."""
    try:
        return read([folder], progress)
    except PerfdoctorError as error:
        raise PerfdoctorError(f"{packed.name}: {error.what.replace(f'{folder.parent}/', '')}", do=error.do) from error


def _with_own_ranks(timelines: list[Timeline], *, are_reported: bool = False) -> list[Timeline]:
    """Files that have the same rank (or none) get the next free one, in the order given.

    `are_reported`: ranks of all of them are known from their processes, whatever tool recorded them.
    """
    numbers = own_ranks([timeline.ranks for timeline in timelines])
    return [
        _renumbered(timeline, new, are_known=are_reported or _are_known(timeline))
        for timeline, new in zip(timelines, numbers, strict=True)
    ]


def _are_known(timeline: Timeline) -> bool:
    """Are its ranks recorded, or in its name? Nsight Systems records none."""
    return any(each.kind != "nsys" or rank_in(each.file) in each.ranks for each in timeline.sources)


def own_ranks(of_files: Sequence[Sequence[int]]) -> list[dict[int, int]]:
    """For each file the ranks in it that get another number, and which: where an earlier file has the same rank."""
    claimed = {rank for ranks in of_files for rank in ranks}
    free = (number for number in count() if number not in claimed)
    taken: set[int] = set()
    result = []
    for ranks in of_files:
        result.append({rank: next(free) for rank in ranks if rank in taken})
        taken.update(ranks)
    return result


def _renumbered(timeline: Timeline, new: Mapping[int, int], *, are_known: bool = True) -> Timeline:
    """The timeline with other numbers for some of its ranks, and a note that says so. `new`: by their numbers in it.

    `are_known`: these numbers were recorded, and are not those in which a reader found the processes.
    """
    if not new:
        return timeline

    def frame(old: Frame) -> Frame:
        rank = old["rank"].copy()
        for before, after in new.items():
            rank[old["rank"] == before] = after
        return old.with_columns(rank=rank)

    watched = timeline.watched_run
    file, is_one = timeline.sources[0].file, len(timeline.ranks) == 1
    changes = ", ".join(
        f"{'' if is_one and not are_known else f'rank {before} of '}{file} is shown as rank {after}"
        for before, after in new.items()
    )
    note = (
        f"Two recordings have the same rank: {changes}. Of two runs use perfdoctor compare."
        if are_known
        else f"Nsight Systems records no rank numbers: {changes}."
    )
    return replace(
        timeline,
        frames={signal: frame(rows) for signal, rows in timeline.frames.items()},
        devices=tuple(replace(device, rank=new.get(device.rank, device.rank)) for device in timeline.devices),
        sources=tuple(replace(s, ranks=tuple(new.get(rank, rank) for rank in s.ranks)) for s in timeline.sources),
        unrecorded_step_ns={new.get(rank, rank): ns for rank, ns in timeline.unrecorded_step_ns.items()},
        unrecorded_steps={new.get(rank, rank): count for rank, count in timeline.unrecorded_steps.items()},
        timed_steps={new.get(rank, rank): steps for rank, steps in timeline.timed_steps.items()},
        whole_runs=tuple(replace(each, rank=new.get(each.rank, each.rank)) for each in timeline.whole_runs),
        watched_run=watched and replace(watched, rank=new.get(watched.rank, watched.rank)),
        notes=(*timeline.notes, note),
    )

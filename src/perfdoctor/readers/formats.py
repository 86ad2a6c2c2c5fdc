"""Which formats are there? For each: how it is recognised, read and joined, and what its files are called.

The table is asked in its order: the first row that recognises a file's first bytes reads it. Everything that asks what
a file is asks here.
"""

from __future__ import annotations

import stat
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import archive, packed, side_files, stack_clock, stack_files, text_rows
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.readers.leaving_out import unopened
from perfdoctor.readers.machine import cpu_samples, process_lists, sample_tables, topology
from perfdoctor.readers.machine import samples as device_samples
from perfdoctor.readers.nccl import flight_recorder, nccl_tests
from perfdoctor.readers.nccl import log as nccl_log
from perfdoctor.readers.ncu import csv_pages as ncu_csv
from perfdoctor.readers.ncu import profiles as ncu
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys import table_files
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.readers.torch_memory import profiler_timeline as memory_timeline
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.readers.torch_memory import snapshot_ranks
from perfdoctor.system import tool_process
from perfdoctor.system.progress import Done, Progress

#: What is read is a Timeline, but of stacks a `StackFile`: whatever the same row's `join` takes.
Read = Callable[[Path, Progress, Done], Any]
Join = Callable[[Timeline, Sequence[Any]], Timeline]

#: Enough to recognise every format: a Kineto trace of a large job has long metadata in front of its events.
_HEAD_BYTES = 65_536
_GZIP = b"\x1f\x8b"


class Format(Struct, frozen=True):
    """One kind of file or folder. `called`: its `kind` as other rooms name it, where that is another word.

    `looks_like` gets a file's first bytes, without compression; None where it is a folder. `is_at` gets the path, where
    the first bytes do not suffice; `is_named` both, of a file that the user named. `join` puts several into the
    recording beside which they were made; None: it holds ranks. `unpack` gives a folder that is read instead.

    `tool` and `files`: who writes it, and how messages name it (none: only its tool). `endings`: of its files' names,
    or of its folder's. `marker`: a file in each such folder. `yields_to`: kinds that are the same recording where they
    lie beside it under the same name. `is_recording`: is a report of its own made of it?
    """

    kind: str
    tool: str
    read: Read | None
    looks_like: Callable[[bytes], bool] | None
    is_at: Callable[[Path], bool] | None = None
    is_named: Callable[[Path, bytes], bool] | None = None
    join: Join | None = None
    unpack: Callable[[Path], AbstractContextManager[Path]] | None = None
    called: str = ""
    files: str = ""
    endings: tuple[str, ...] = ()
    marker: str = ""
    yields_to: tuple[str, ...] = ()
    is_recording: bool = False


def _plain(read: Callable[[Path], Any]) -> Read:
    return lambda file, _progress, _done: read(file)


def _exported(file: Path, progress: Progress, _done: Done) -> Timeline:
    """The Timeline of a report, read by way of its export."""
    progress(f"Exporting {file.name} with nsys")
    return nsys.read(nsys_export.export(file), name=file.name)


def _as_text(looks_like: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Recognise files of text alone that are no JSON."""
    return lambda head: b"\0" not in head[:4096] and not text_rows.is_json(head) and looks_like(head)


_NSYS, _NCU = "Nsight Systems", "Nsight Compute"
_SIDE = side_files.joined

FORMATS: tuple[Format, ...] = (
    Format(
        "rank", "summaries of ranks", _plain(packed.read_rank), packed.is_rank, files=".rank",
        endings=(packed.RANK_ENDING,), is_recording=True,
    ),
    Format("machine", "summaries of ranks", _plain(packed.read_machine), packed.is_machine, join=_SIDE),
    # stacks that were sampled describe what another file records
    Format(
        "stacks", "py-spy", _plain(stack_files.read), stack_files.looks_like, join=stack_clock.joined,
    ),
    Format(
        "report", _NSYS, _exported, nsys_export.is_report, called="nsys", files=".nsys-rep, .qdrep, .qdstrm",
        endings=(".nsys-rep", ".qdrep", ".qdstrm"), yields_to=("nsys",), is_recording=True,
    ),
    Format(
        "nsys", _NSYS, _plain(nsys.read), lambda head: head.startswith(b"SQLite format 3\x00"), files=".sqlite",
        endings=(".sqlite",), is_recording=True,
    ),
    Format(
        "nsys-arrow", _NSYS, _plain(table_files.read), None, table_files.is_arrow, called="nsys", files="arrowdir",
        endings=("_arwdir",), marker=f"{table_files.STRINGS}{table_files.ARROW}", yields_to=("nsys", "report"),
        is_recording=True,
    ),
    Format(
        "nsys-parquet", _NSYS, _plain(table_files.read), None, table_files.is_parquet, called="nsys",
        files="parquetdir", endings=("_pqtdir",), marker=f"{table_files.STRINGS}{table_files.PARQUET}",
        yields_to=("nsys", "report", "nsys-arrow"), is_recording=True,
    ),
    Format(
        "zip", _NSYS, None, lambda head: head.startswith(archive.MAGIC), lambda file: archive.holds(file, _packed()),
        unpack=lambda file: archive.unpacked(file, _packed()), files=".zip of these", endings=(".zip",),
    ),
    Format(
        "ncu-report", _NCU, _plain(ncu.read), ncu.is_report, join=ncu.with_profiles, called="ncu", files=".ncu-rep",
        endings=(".ncu-rep",), yields_to=("ncu-table",), is_recording=True,
    ),
    # its header may stand behind pages of other text: in JSON, of which traces are, nobody looks for it
    Format(
        "ncu-table", _NCU, _plain(ncu.read), lambda head: not text_rows.is_json(head) and ncu_csv.looks_like(head),
        join=ncu.with_profiles, called="ncu", files=".csv", endings=(".csv",),
    ),
    Format(
        "ncu-text", _NCU, _plain(ncu.read), _as_text(ncu.is_printed_text), join=ncu.with_profiles, called="ncu",
        files="printed text",
    ),
    Format(
        "snapshot", "torch.cuda.memory", _plain(memory_snapshot.read), memory_snapshot.looks_like,
        join=snapshot_ranks.joined, called="memory", files=".pickle", endings=(".pickle",), is_recording=True,
    ),
    Format(
        "memory-timeline", "torch.profiler", _plain(memory_timeline.read), memory_timeline.looks_like,
        join=snapshot_ranks.joined, called="memory",
    ),
    Format(
        "kineto", "torch.profiler", lambda file, _progress, done: kineto.read(file, done), kineto.looks_like,
        files=".json, .json.gz", endings=(".json", ".json.gz", ".trace", ".trace.gz"), is_recording=True,
    ),
    Format("flight-recorder", "NCCL", _plain(flight_recorder.read), flight_recorder.looks_like, join=_SIDE,
           files="flight recorder"),
    Format("nccl", "NCCL", _plain(nccl_log.read), _as_text(nccl_log.looks_like), is_named=nccl_log.is_log, join=_SIDE,
           files="logs"),
    Format("nccl-tests", "NCCL", _plain(nccl_tests.read), _as_text(nccl_tests.looks_like), join=_SIDE, files="tests"),
    Format("topology", "nvidia-smi", _plain(topology.read), _as_text(topology.looks_like), join=_SIDE,
           files="topo -m"),
    Format("cpu", "perfdoctor run", _plain(cpu_samples.read), _as_text(cpu_samples.looks_like), join=_SIDE),
    Format("processes", "nvidia-smi", _plain(process_lists.read), _as_text(process_lists.looks_like), join=_SIDE),
    Format("nvml", "nvidia-smi", _plain(device_samples.read), _as_text(sample_tables.looks_like), join=_SIDE,
           files="samples"),
)  # fmt: skip
#: What joins the recording, in this order: what it was beside, after its kernels are known.
JOINS: tuple[Join, ...] = (ncu.with_profiles, side_files.joined, stack_clock.joined, snapshot_ranks.joined)


def preferred_to(row: Format) -> tuple[str, ...]:
    """The kinds that are read instead where they lie beside a file of this format under the same name.

    Without nsys a report is read by what was exported of it, whatever else that lacks.
    """
    if tool_process.find("nsys"):
        return row.yields_to
    if row.kind == "report":
        return (*row.yields_to, *(other.kind for other in FORMATS if row.kind in other.yields_to))
    return tuple(kind for kind in row.yields_to if kind != "report")


def _packed() -> tuple[str, ...]:
    """The endings of a zip archive's members that hold ranks; with `/`, of files whose whole folder is meant."""
    files = (each for row in FORMATS if row.looks_like and not row.join and not row.unpack for each in row.endings)
    return (*(f".trace{each}" if each.startswith(".json") else each for each in files),
            *(f"/{row.marker}" for row in FORMATS if row.marker))  # fmt: skip


def endings(*, recordings: bool = False) -> tuple[str, ...]:
    """The endings of the names of all files that are read, or of `recordings` alone."""
    rows = (row for row in FORMATS if row.looks_like and row.is_recording >= recordings)
    return tuple(ending for row in rows for ending in row.endings)


def what_is_read() -> str:
    """All formats in words, by tool: `Nsight Systems (.nsys-rep, .sqlite), … and nvidia-smi (samples)`."""
    tools: dict[str, list[str]] = {}
    for row in FORMATS:
        if row.files:
            tools.setdefault(row.tool, []).append(row.files)
    *most, last = (f"{tool} ({', '.join(files)})" for tool, files in tools.items())
    return f"{', '.join(most)} and {last}"


# --- what is this file? ----------------------------------------------------------------------------------------------


def head_of(file: Path) -> bytes:
    """Its first bytes, without compression; none of a damaged gzip file. Raises PerfdoctorError."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # opening a pipe may wait for ever
            raise PerfdoctorError(f"{file.name} is no file", do="Write what it gives into a file, and pass that.")
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise unopened(file, error) from error
    return inflated(head)


def inflated(head: bytes) -> bytes:
    """The first bytes of a file without compression; none of a damaged gzip file."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except zlib.error:
        return b""


def of_head(head: bytes) -> Format | None:
    """The format of a file that begins so, without compression; None if unknown."""
    return next((row for row in FORMATS if row.looks_like and row.looks_like(head)), None)


def of(path: Path) -> Format | None:
    """The format of a file or folder by its content; None if unknown. Raises PerfdoctorError."""
    try:
        now = path.stat()
    except OSError:
        return of_head(head_of(path))  # which says why
    return _at(path, now.st_size, now.st_mtime_ns)


@lru_cache(maxsize=1 << 18)
def _at(path: Path, _bytes: int, _changed_ns: int) -> Format | None:
    """The format of a file in this state, kept: a folder may hold 100,000 files, each asked about several times."""
    if path.is_dir():
        return next((row for row in FORMATS if not row.looks_like and row.is_at and row.is_at(path)), None)
    found = of_head(head_of(path))
    return found if found is None or found.is_at is None or found.is_at(path) else None


def of_named(file: Path) -> Format | None:
    """The format of a file that the user named: NCCL's first line may come late in a job's output."""
    return of(file) or next((row for row in FORMATS if row.is_named and row.is_named(file, head_of(file))), None)


def kind_of(path: Path) -> str | None:
    """What tool wrote a file or folder, as one word; None if it is no recording. Raises PerfdoctorError."""
    row = of(path)
    if row is None or (row.kind == "kineto" and not text_rows.is_json(head_of(path))):
        return None  # a program that speaks of traces
    return row.called or row.kind

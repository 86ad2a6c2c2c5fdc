"""What did Nsight Systems record? Its SQLite export, of any schema from 2.9 on, as a Timeline.

Process and thread are packed into `globalTid` (bits 24-47 and 0-23). Memory kinds are nsys's own enumeration: 0 is
pageable, 1 is pinned. The kernels of a CUDA graph traced as a whole are one row of GRAPH_TRACE and count as busy.
Rank numbers are not recorded: each process with GPU work is a rank, in the order of its lowest device, or by the name
of its export (`nsys profile -o rank_%q{RANK}`), where it is the only one. Bytes and group
of collectives are known only from NVTX payloads (`nccl_payloads`). The environment and the names of host and user,
which an export holds in three places, are never read; of META_DATA_CAPTURE only whether NVTX was traced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import UNKNOWN, Device, Frame, Mask, Source, Text, Timeline, places_of
from perfdoctor.patterns import regex
from perfdoctor.readers.collective_kinds import kinds_as_launched
from perfdoctor.readers.nsys.frames import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMORY,
    MEMORY_COLUMNS,
    MEMSET,
    SYNC,
    SYNC_COLUMNS,
    Ranks,
    device_frames,
    device_memory,
    host_frames,
    stream_waits,
    with_process,
)
from perfdoctor.readers.nsys.gpu_metrics import gpu_counters
from perfdoctor.readers.nsys.nccl_payloads import payloads, with_payloads
from perfdoctor.readers.nsys.python_stacks import python_stacks
from perfdoctor.readers.nsys.tables import (
    GPU_METRICS,
    GPU_METRICS_COLUMNS,
    NONE,
    NVTX,
    NVTX_COLUMNS,
    UNREADABLE,
    Columns,
    Database,
    ExportTables,
    damaged,
)
from perfdoctor.readers.rank_names import rank_in

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_CALLS, _CUPTI_OVERHEAD = _CUPTI + "RUNTIME", _CUPTI + "OVERHEAD"
_OS_CALLS, _OVERHEAD = "OSRT_API", "PROFILER_OVERHEAD"

_PLACE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_OF_HOST = ("start", "end", "globalTid", "nameId")
#: The tables that may be large, and which of their columns are read.
_WANTED = {
    NVTX: NVTX_COLUMNS,
    KERNEL: (
        *_PLACE, *(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"),
        "staticSharedMemory", "dynamicSharedMemory", "demangledName", "shortName",
    ),
    _CALLS: (*_OF_HOST, "correlationId"),
    MEMCPY: (*_PLACE, "bytes", "copyKind", "srcKind", "dstKind"),
    MEMSET: (*_PLACE, "bytes"),
    GRAPH: (*_PLACE, "graphId"),
    **dict.fromkeys((_OS_CALLS, _OVERHEAD, _CUPTI_OVERHEAD), _OF_HOST),
    MEMORY: MEMORY_COLUMNS,
    SYNC: SYNC_COLUMNS,
    GPU_METRICS: GPU_METRICS_COLUMNS,
}  # fmt: skip

#: Signals that were recorded if they have a row.
_BY_ROWS = ("ops", "device_memory", "stream_waits", "stack_samples", "gpu_counters", "other_gpu_counters")

_WARNING, _ERROR = 2, 3
_COLLECTION_TROUBLE = regex(
    r"not (?:be |been )?(?:collected|started)|not supported|no (?:cuda|nvtx) events|cupti", re.IGNORECASE
)
#: A sentence with a path, a setting, an address or a person's name is not quoted.
_PRIVATE = regex(r"[/\\~@=$]|\b(host|user|environment)", re.IGNORECASE)


def _of_another(database: Database) -> str:
    """What a database that is no export is, by its tables."""
    if any(table.startswith("rocpd_") for table in database.tables):
        return "a database of rocprofv3 (rocpd)"
    if "StringTable" in database.tables and any(table.startswith("CUPTI_") for table in database.tables):
        return "a database of nvprof, which is retired"
    return "a SQLite file"


def read(path: Path, ranks: Mapping[int, int] | None = None, without: Collection[int] = (), name: str = "") -> Timeline:
    """One Timeline of one export. `ranks`: process → rank, where known from the recording. `without` these processes.
    `name`: of the report that it was made of.

    Raises PerfdoctorError for a damaged file and for a database of something else.
    """
    with closing(Database.open(path, name)) as database:
        if database.is_damaged and not database.is_export:
            raise damaged(path, "its list of tables is not whole")
        if not database.is_export:
            raise PerfdoctorError(
                f"`{path.name}` is {_of_another(database)}, but not an export of Nsight Systems",
                do="Pass a .nsys-rep, or what `nsys export --type sqlite` made of it.",
            )
        try:
            return replace(_timeline(ExportTables(database), ranks or {}, without), epoch_ns=_epoch_ns(database))
        except UNREADABLE as error:
            raise damaged(path, error) from error


def processes(path: Path) -> frozenset[int]:
    """The processes with work on a GPU; where there is no such work at all, those with ranges."""
    with closing(Database.open(path)) as database:
        of_device = [
            row
            for table in (KERNEL, GRAPH, MEMCPY, MEMSET)
            for row in database.rows(table, "DISTINCT (globalPid >> 24) & 0xFFFFFF")
        ]
        found = of_device or database.rows(NVTX, "DISTINCT (globalTid >> 24) & 0xFFFFFF")
    return frozenset(pid for (pid,) in found if isinstance(pid, int))


def _epoch_ns(database: Database) -> int | None:
    """When the export's time 0 was, in ns since 1970; None where unknown."""
    found = database.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    return int(found[0][0]) if found and isinstance(found[0][0], int) else None


def _timeline(tables: ExportTables, known: Mapping[int, int], without: Collection[int]) -> Timeline:
    tables.database.read_ahead(_WANTED, {NVTX: "text"})
    device = {
        table: with_process(tables.rows(table, _WANTED[table], is_device=True), "globalPid")
        for table in (KERNEL, GRAPH, MEMCPY, MEMSET)
    }
    host = {name: (with_process(rows, "globalTid"), names) for name, (rows, names) in _host_rows(tables).items()}
    read = (*device.values(), *(rows for rows, _ in host.values()))
    if tables.unreadable and not any(rows["start"].size for rows in read):
        raise damaged(tables.database.path, next(iter(tables.unreadable.values())))
    if without:
        device = {name: _taken(rows, _is_kept(rows, without)) for name, rows in device.items()}
        kept = {name: _is_kept(rows, without) for name, (rows, _) in host.items()}
        host = {name: (_taken(rows, kept[name]), names.take(kept[name])) for name, (rows, names) in host.items()}
    ranks = Ranks.of(device, host, known)
    in_name = rank_in(tables.database.name)
    if in_name is not None and not known and len(ranks.of_process) == 1:
        ranks = replace(ranks, of_process=dict.fromkeys(ranks.of_process, in_name))
    frames = {**device_frames(tables, device, ranks), **host_frames(host, ranks)}
    frames["collectives"] = frames["collectives"].with_columns(kind=kinds_as_launched(frames))
    frames["device_memory"] = device_memory(tables, ranks)
    frames["stack_samples"] = python_stacks(tables, ranks)
    frames["stream_waits"] = stream_waits(tables, ranks, frames["calls"])
    frames |= gpu_counters(tables, places_of(frames))
    if len(frames["collectives"]):
        frames["collectives"] = with_payloads(frames, payloads(tables.database, ranks.of_process))
    recorded = _recorded(tables, frames)
    _note_losses(
        tables, ranks, host, has_ranks=bool(known), is_gpu_recorded="kernels" in recorded or "copies" in recorded
    )
    database = tables.database
    of_export = ("META_DATA_EXPORT", "EXPORT_META_DATA")
    versions = (row for table in of_export for row in database.rows(table, "value", "name = 'EXPORT_PRODUCT_VERSION'"))
    version = next((str(value) for (value,) in versions), "")
    return Timeline.build(
        {signal: frame for signal, frame in frames.items() if signal in recorded},
        recorded,
        sources=[Source("nsys", database.name, version, tuple(ranks.of_process.values()))],
        devices=_devices(database, frames),
        thread_names=_thread_names(database, ranks),
        notes=tables.notes,
    )


# --- rows ---


def _host_rows(tables: ExportTables) -> dict[str, tuple[Columns, Text]]:
    calls, os_calls, overheads, cupti = (
        tables.rows(table, _WANTED[table]) for table in (_CALLS, _OS_CALLS, _OVERHEAD, _CUPTI_OVERHEAD)
    )
    named = cupti["nameId"] != NONE
    overheads = {name: np.concatenate((values, cupti[name][named])) for name, values in overheads.items()}
    return {
        "calls": (calls, tables.text(calls["nameId"])),
        "nvtx": tables.nvtx(),
        "os_calls": (os_calls, tables.text(os_calls["nameId"])),
        "overheads": (overheads, tables.text(overheads["nameId"])),
    }


def _is_kept(rows: Columns, without: Collection[int]) -> Mask:
    """One bool a row: is its process none of those in `without`?"""
    return ~np.isin(rows["process"], list(without))


def _taken(rows: Columns, kept: Mask) -> Columns:
    return {name: values[kept] for name, values in rows.items()}


# --- about the recording ---


def _recorded(tables: ExportTables, frames: Mapping[str, Frame]) -> set[str]:
    """The signals that have a whole table. On the device any work proves that all of it was traced."""
    database, lost = tables.database, tables.unreadable
    recorded: set[str] = set()
    if any(table in lost or database.has_rows(table) for table in (KERNEL, GRAPH, MEMCPY, MEMSET)):
        recorded |= set() if {KERNEL, GRAPH} & lost.keys() else {"kernels", "collectives"}
        recorded |= set() if {MEMCPY, MEMSET} & lost.keys() else {"copies"}
    else:
        tables.notes.append(f"No GPU activity was recorded in {database.name}.")
    recorded |= {"calls"} if _CALLS in database.tables and _CALLS not in lost else set()
    recorded |= {"ranges"} if _was_nvtx_traced(database) and NVTX not in lost else set()
    recorded |= {signal for signal in _BY_ROWS if len(frames[signal])}
    recorded |= {"os_calls"} if database.has_rows(_OS_CALLS) and _OS_CALLS not in lost else set()
    return recorded | ({"overheads"} if _OVERHEAD in database.tables and _OVERHEAD not in lost else set())


def _was_nvtx_traced(database: Database) -> bool:
    found = database.rows("META_DATA_CAPTURE", "value", "name LIKE '%:COLLECT_NVTX_TRACE'")
    settings = {str(value).lower() for (value,) in found}
    return "true" in settings or database.has_rows(NVTX) or (NVTX in database.tables and not settings)


def _devices(database: Database, frames: Mapping[str, Frame]) -> list[Device]:
    """The GPUs that were used; those of the machine, where nothing ran on any."""
    known = _gpus(database)
    used = places_of(frames)
    if not used:
        ranks = sorted({int(rank) for frame in frames.values() if len(frame) for rank in np.unique(frame["rank"])})
        return [replace(gpu, rank=ranks[0], device=number) for number, gpu in enumerate(known.values()) if ranks]
    places = (place for place in used if place[1] in known)
    return [replace(known[device], rank=rank, device=device) for rank, device in places]


def _gpus(database: Database) -> dict[object, Device]:
    """The GPUs by nsys's number, which kernels contain; by CUDA's where the table lacks that one."""
    columns = database.columns_of("TARGET_INFO_GPU")
    if not {"id", "name"} <= columns:
        return {}
    wanted = ("smCount", "computeMajor", "computeMinor", "totalMemory", "memoryBandwidth", "clockRate")
    numbers = ", ".join(f"CAST(coalesce({name}, 0) AS INTEGER)" if name in columns else "0" for name in wanted)
    rows = database.rows("TARGET_INFO_GPU", f"id, {'cuDevice' if 'cuDevice' in columns else 'id'}, name, {numbers}")
    gpus = []
    for row in rows:
        sms, major, minor, memory, bandwidth, clock = (int(str(value)) for value in row[3:])
        gpus.append(Device(0, 0, str(row[2] or ""), sms, (major, minor), memory, bandwidth, clock))
    by_cuda = {row[1]: gpu for row, gpu in zip(reversed(rows), reversed(gpus), strict=True)}
    return by_cuda | {row[0]: gpu for row, gpu in zip(rows, gpus, strict=True)}


def _thread_names(database: Database, ranks: Ranks) -> dict[tuple[int, int], str]:
    found = [row for row in database.rows("ThreadNames", "globalTid, nameId") if all(isinstance(v, int) for v in row)]
    named = {((int(str(t)) >> 24) & 0xFFFFFF, int(str(t)) & 0xFFFFFF): int(str(n)) for t, n in found}
    ours = {place: number for place, number in named.items() if place[0] in ranks.of_process}
    names = database.names(sorted(set(ours.values())))
    return {place: names[number] for place, number in ours.items() if number in names}


def _note_losses(
    tables: ExportTables,
    ranks: Ranks,
    host: Mapping[str, tuple[Columns, Text]],
    *,
    has_ranks: bool,
    is_gpu_recorded: bool,
) -> None:
    if len(ranks.of_process) > 1 and not has_ranks:
        tables.notes.append("Nsight Systems does not record rank numbers: ranks are numbered by device.")
    others = sum(int((ranks.ranks(ranks.processes(rows)) == UNKNOWN).sum()) for rows, _ in host.values())
    if others:
        whose = "other processes" if has_ranks else "processes without GPU work"
        tables.notes.append(f"{others:,} events of {whose} (data loaders, shells) were left out.")
    if tables.database.is_damaged:
        tables.notes.append(f"`{tables.database.name}` is damaged or cut short: whole tables may be missing.")
    tables.notes.extend(_diagnostics(tables.database, _ERROR if is_gpu_recorded else _WARNING))


def _diagnostics(database: Database, severity: int) -> list[str]:
    """Messages of nsys about trouble with the collection: at most three sentences, and nothing private."""
    messages = database.rows("DIAGNOSTIC_EVENT", "DISTINCT text", f"severity BETWEEN {severity} AND {_ERROR}")
    sentences = (each for (text,) in messages for each in re.split(r"(?<=[.!?])\s+|\n", str(text)))
    quotable = (each for each in sentences if _COLLECTION_TROUBLE.search(each) and not _PRIVATE.search(each))
    return [f"Nsight Systems reports: {each}" for each in dict.fromkeys(each.strip()[:200] for each in quotable)][:3]

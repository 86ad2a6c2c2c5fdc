"""What did Nsight Systems record? Its SQLite export, of any schema from 2.9 on, as a Timeline.

Process and thread are packed into `globalTid` (bits 24-47 and 0-23). Memory kinds are nsys's own enumeration: 0 is
pageable, 1 is pinned. The kernels of a CUDA graph traced as a whole are one row of GRAPH_TRACE and count as busy.
Rank numbers are not recorded: each process with GPU work is a rank, in the order of its lowest device. Bytes and group
of collectives stand in NVTX payloads at best and stay UNKNOWN. What CUDA itself spends (a full launch queue, modules
loaded late) is listed with the overheads of newer exports, but is none of the profiler's and left out. The environment
and the names of host and user, which an export holds in three places, are never read; of META_DATA_CAPTURE only whether
NVTX was traced.

Longer than other modules: the frames below share the ranks and the process of every row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.ingest.nsys_tables import NONE, UNREADABLE, Columns, Database, Ints, Tables, damaged, different
from perfdoctor.timeline.kernel_names import COLLECTIVE, collective_kind
from perfdoctor.timeline.model import UNKNOWN, Column, Device, Frame, Source, Text, Timeline

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_KERNEL, _GRAPH, _MEMCPY, _MEMSET = (_CUPTI + kind for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET"))
_CALLS, _CUPTI_OVERHEAD = _CUPTI + "RUNTIME", _CUPTI + "OVERHEAD"
_NVTX, _OS_CALLS, _OVERHEAD = "NVTX_EVENTS", "OSRT_API", "PROFILER_OVERHEAD"

_DIRECTIONS = {1: "h2d", 2: "d2h", 8: "d2d", 9: "h2h", 10: "p2p"}
_HOST_MEMORY = {0: "pageable", 1: "pinned", 4: "managed", 6: "managed", 2: "none", 3: "none", 5: "none"}
#: CUPTI's driver compiler, module loading, lazy function loading, command buffer full.
_NOT_THE_PROFILER = (2, 6, 7, 8)
_CALL_VERSION = re.compile(r"(_v\d+)+$")
#: NVTX ranges that torch.autograd.profiler.emit_nvtx writes: they are ops.
_OP = re.compile(
    r"^(aten|autograd|torch|c10|c10d|_c10d_functional|prims|profiler|quantized|torchvision|torchaudio|fbgemm|inductor"
    r"|xformers|flash_attn)::|^\w+Backward\d*$"
)
_OP_DETAILS = re.compile(r", (?:op_id|seq|input_op_ids|sizes) = ")
_OP_SIZES = re.compile(r", sizes = (\[.*?\])(?=, \w+ = |$)")
_DATA_TYPE = re.compile(
    r"_(float|half|double|bfloat16|u?int\d+_t|bf16|f16|f32|f64|f8e4m3|f8e5m2|[iu](?:8|32|64))(?![a-z0-9])",
    re.IGNORECASE,
)
_WARNING, _ERROR = 2, 3
_COLLECTION_TROUBLE = re.compile(
    r"not (?:be |been )?(?:collected|started)|not supported|no (?:cuda|nvtx) events|cupti", re.IGNORECASE
)
#: A sentence with a path, a setting, an address or a name of somebody is not quoted.
_PRIVATE = re.compile(r"[/\\~@=$]|\b(host|user|environment)", re.IGNORECASE)


def is_nsys_sqlite(path: Path) -> bool:
    """Is this an export of Nsight Systems? Raises PerfdoctorError where it is no readable SQLite file at all."""
    database = Database.open(path)
    try:
        return database.is_export
    finally:
        database.connection.close()


def read(path: Path) -> Timeline:
    """One Timeline of one export. Raises PerfdoctorError for a damaged file and for a database of something else."""
    database = Database.open(path)
    try:
        if database.is_damaged and not database.is_export:
            raise damaged(path, "its list of tables is not whole")
        if not database.is_export:
            raise PerfdoctorError(
                f"`{path.name}` is a SQLite file, but not an export of Nsight Systems",
                do="Pass a .nsys-rep, or what `nsys export --type sqlite` made of it.",
            )
        return _timeline(Tables(database))
    except UNREADABLE as error:
        raise damaged(path, error) from error
    finally:
        database.connection.close()


def _timeline(tables: Tables) -> Timeline:
    device = {name: _with_process(rows, "globalPid") for name, rows in _device_rows(tables).items()}
    host = {name: (_with_process(rows, "globalTid"), names) for name, (rows, names) in _host_rows(tables).items()}
    _refuse_if_nothing_is_left(tables, [*device.values(), *(rows for rows, _ in host.values())])
    ranks = _Ranks.of(device, host)
    frames = {**_device_frames(tables, device, ranks), **_host_frames(host, ranks)}
    recorded = _recorded(tables, frames)
    _note_losses(tables, ranks, host, is_gpu_recorded="kernels" in recorded or "copies" in recorded)
    database = tables.database
    return Timeline.build(
        {signal: frame for signal, frame in frames.items() if signal in recorded},
        recorded,
        sources=[Source("nsys", database.path.name, _version(database), tuple(ranks.of_process.values()))],
        devices=_devices(database, frames),
        thread_names=_thread_names(database, ranks),
        notes=tables.notes,
    )


# --- rows ---


def _device_rows(tables: Tables) -> dict[str, Columns]:
    place = ("deviceId", "streamId", "correlationId", "globalPid")
    grid = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    wanted = {
        _KERNEL: (*grid, "demangledName", "shortName"),
        _GRAPH: ("graphId",),
        _MEMCPY: ("bytes", "copyKind", "srcKind", "dstKind"),
        _MEMSET: ("bytes",),
    }
    return {table: tables.rows(table, *place, *columns, is_device=True) for table, columns in wanted.items()}


def _host_rows(tables: Tables) -> dict[str, tuple[Columns, Text]]:
    calls = tables.rows(_CALLS, "globalTid", "correlationId", "nameId")
    os_calls, overheads = tables.rows(_OS_CALLS, "globalTid", "nameId"), tables.rows(_OVERHEAD, "globalTid", "nameId")
    cupti = tables.rows(_CUPTI_OVERHEAD, "globalTid", "nameId", "overheadType")
    own = ~np.isin(cupti["overheadType"], _NOT_THE_PROFILER) & (cupti["nameId"] != NONE)
    overheads = {name: np.concatenate((values, cupti[name][own])) for name, values in overheads.items()}
    return {
        "calls": (calls, tables.text(calls["nameId"])),
        "nvtx": tables.nvtx(),
        "os_calls": (os_calls, tables.text(os_calls["nameId"])),
        "overheads": (overheads, tables.text(overheads["nameId"])),
    }


def _with_process(rows: Columns, packed: str) -> Columns:
    values = rows[packed]
    return {**rows, "process": np.where(values == NONE, UNKNOWN, (values >> 24) & 0xFFFFFF)}


def _refuse_if_nothing_is_left(tables: Tables, read: list[Columns]) -> None:
    if tables.unreadable and not any(rows["start"].size for rows in read):
        raise damaged(tables.database.path, next(iter(tables.unreadable.values())))


# --- ranks ---


@dataclass(frozen=True)
class _Ranks:
    """Which process is which rank, and whose the rows are that do not tell their process."""

    of_process: Mapping[int, int]
    untold: int

    @classmethod
    def of(cls, device: Mapping[str, Columns], host: Mapping[str, tuple[Columns, Text]]) -> _Ranks:
        """Processes with GPU work by their lowest device; without any, the one with most ranges is the only rank."""
        busiest = next(
            (p for s in ("nvtx", "calls", "os_calls") if (p := _most_frequent(host[s][0])) is not None), None
        )
        caller = _most_frequent(host["calls"][0])
        untold = caller if caller is not None else busiest or 0
        lowest: dict[int, int] = {}
        for rows in device.values():
            for process in _occurring(rows["process"]):
                first = int(_or(rows["deviceId"][rows["process"] == process], 0).min())
                known = untold if process == UNKNOWN else process
                lowest[known] = min(lowest.get(known, first), first)
        if not lowest:
            return cls({} if busiest is None else {busiest: 0}, busiest or 0)
        ordered = sorted(lowest, key=lambda process: (lowest[process], process))
        return cls({process: rank for rank, process in enumerate(ordered)}, untold)

    def processes(self, rows: Columns) -> Ints:
        """The process of each row; rows that do not tell belong to the only one, or to the one that calls most."""
        only = next(iter(self.of_process)) if len(self.of_process) == 1 else self.untold
        return np.where(rows["process"] == UNKNOWN, only, rows["process"])

    def ranks(self, processes: Ints) -> Ints:
        """The rank of each process, UNKNOWN for those that are none."""
        result = np.full(processes.size, UNKNOWN, dtype=np.int64)
        for process, rank in self.of_process.items():
            result[processes == process] = rank
        return result


def _occurring(values: Ints) -> list[int]:
    return [int(value) for value in different(values)[0]]


def _most_frequent(rows: Columns) -> int | None:
    processes, codes = different(rows["process"][rows["process"] != UNKNOWN])
    return int(processes[np.bincount(codes).argmax()]) if processes.size else None


# --- frames of the device ---


def _device_frames(tables: Tables, device: Mapping[str, Columns], ranks: _Ranks) -> dict[str, Frame]:
    kernels = _kernels(tables, device[_KERNEL], ranks)
    if device[_GRAPH]["start"].size:
        kernels = Frame.join([kernels, _graphs(device[_GRAPH], ranks)])
    is_collective = kernels.name.matches(COLLECTIVE)
    return {
        "kernels": kernels.take(~is_collective) if is_collective.any() else kernels,
        "collectives": _collectives(kernels.take(is_collective)),
        "copies": Frame.join([_memcpy(device[_MEMCPY], ranks), _memset(device[_MEMSET], ranks)]),
    }


def _place(rows: Columns, ranks: _Ranks) -> dict[str, Column]:
    process = ranks.processes(rows)
    return {
        "rank": ranks.ranks(process), "device": _or(rows["deviceId"], 0), "stream": _or(rows["streamId"]),
        "process": process, "start_ns": rows["start"], "end_ns": rows["end"], "correlation": _or(rows["correlationId"]),
    }  # fmt: skip


def _kernels(tables: Tables, rows: Columns, ranks: _Ranks) -> Frame:
    name = np.where(rows["demangledName"] != NONE, rows["demangledName"], rows["shortName"])
    return Frame({
        **_place(rows, ranks), "name": tables.text(name), "blocks": _product(rows, "grid"),
        "threads_per_block": _product(rows, "block"), "is_graph": np.zeros(name.size, dtype=bool),
    })  # fmt: skip


def _graphs(rows: Columns, ranks: _Ranks) -> Frame:
    unknown = np.full(rows["start"].size, UNKNOWN, dtype=np.int64)
    graphs, codes = different(rows["graphId"])
    names = ["CUDA graph" if graph == NONE else f"CUDA graph {graph}" for graph in graphs.tolist()]
    return Frame({
        **_place(rows, ranks), "name": Text(codes.astype(np.int32), names), "blocks": unknown,
        "threads_per_block": unknown, "is_graph": np.ones(unknown.size, dtype=bool),
    })  # fmt: skip


def _collectives(kernels: Frame) -> Frame:
    names, unknown = kernels.name, np.full(len(kernels), UNKNOWN, dtype=np.int64)
    common = ("rank", "device", "stream", "process", "start_ns", "end_ns", "correlation", "name")
    return Frame({
        **{column: kernels.columns[column] for column in common}, "kind": names.mapped(collective_kind),
        "bytes": unknown, "group": Text.constant("", len(kernels)), "group_size": unknown,
        "data_type": names.mapped(_data_type),
    })  # fmt: skip


def _data_type(kernel: str) -> str:
    found = _DATA_TYPE.search(kernel)
    return found[1].lower() if found else ""


def _memcpy(rows: Columns, ranks: _Ranks) -> Frame:
    direction = _worded(rows["copyKind"], _DIRECTIONS)
    host_side = np.where(direction.equals("h2d") | direction.equals("h2h"), rows["srcKind"], rows["dstKind"])
    between_devices = direction.equals("d2d") | direction.equals("p2p")
    memory = _worded(np.where(between_devices, 2, host_side), _HOST_MEMORY)
    names = direction.mapped(lambda value: f"memcpy {value}")
    return _copies(rows, ranks, name=names, direction=direction, host_memory=memory)


def _memset(rows: Columns, ranks: _Ranks) -> Frame:
    count = rows["start"].size
    memset, none = Text.constant("memset", count), Text.constant("none", count)
    return _copies(rows, ranks, name=memset, direction=memset, host_memory=none)


def _copies(rows: Columns, ranks: _Ranks, **text: Text) -> Frame:
    return Frame({**_place(rows, ranks), "bytes": _or(rows["bytes"]), **text}).sorted()


def _worded(values: Ints, words: Mapping[int, str]) -> Text:
    found, codes = different(values)
    return Text(codes.astype(np.int32), [words.get(value, "unknown") for value in found.tolist()]).mapped(str)


def _or(values: Ints, otherwise: int = UNKNOWN) -> Ints:
    return np.where(values == NONE, otherwise, values)


def _product(rows: Columns, what: str) -> Ints:
    sides = [rows[f"{what}{axis}"] for axis in "XYZ"]
    known = np.logical_and.reduce([(side > 0) & (side < 1 << 31) for side in sides])
    return np.where(known, np.prod([np.where(known, side, 1) for side in sides], axis=0), UNKNOWN).astype(np.int64)


# --- frames of the host ---


def _host_frames(host: Mapping[str, tuple[Columns, Text]], ranks: _Ranks) -> dict[str, Frame]:
    frames = {signal: _host_frame(rows, names, ranks) for signal, (rows, names) in host.items() if signal != "calls"}
    ranges, ops = _split_ops(frames.pop("nvtx"))
    return {**frames, "calls": _calls(*host["calls"], ranks), "ranges": ranges, "ops": ops}


def _host_frame(rows: Columns, names: Text, ranks: _Ranks, **more: Column) -> Frame:
    """Rows of processes that are ranks; those of data loaders and shells are counted in a note."""
    process = ranks.processes(rows)
    rank = ranks.ranks(process)
    thread = np.where(rows["globalTid"] == NONE, UNKNOWN, rows["globalTid"] & 0xFFFFFF)
    frame = Frame({
        "rank": rank, "process": process, "thread": thread, "start_ns": rows["start"], "end_ns": rows["end"],
        "name": names, **more,
    })  # fmt: skip
    return frame if (rank != UNKNOWN).all() else frame.take(rank != UNKNOWN)


def _calls(rows: Columns, names: Text, ranks: _Ranks) -> Frame:
    plain = names.mapped(lambda name: _CALL_VERSION.sub("", name))
    calls = _host_frame(rows, plain, ranks, correlation=_or(rows["correlationId"]))
    return _without_twins(calls) if len(plain.values) < len(names.values) else calls


def _without_twins(calls: Frame) -> Frame:
    """Some versions list a call twice, with and without its version suffix: the inner twin says nothing new."""
    order = np.lexsort((-calls.end_ns, calls.start_ns, calls["correlation"], calls["process"]))
    rows = calls.take(order)
    same = np.ones(max(len(rows) - 1, 0), dtype=bool)
    for column in (rows["process"], rows["correlation"], rows.name.codes):
        same &= column[1:] == column[:-1]
    same &= (rows["correlation"][1:] != UNKNOWN) & (rows.end_ns[1:] <= rows.end_ns[:-1])
    return rows.take(np.append(True, ~same)) if same.any() else calls


def _split_ops(nvtx: Frame) -> tuple[Frame, Frame]:
    """User's ranges, and the ops that emit_nvtx wrote as ranges with their details behind the name."""
    names = nvtx.name
    parts = [_op_parts(name) for name in names.values]
    is_op = np.array([part is not None for part in parts] or [False])[names.codes]
    shown, shapes = (Text.of(part[i] if part else "" for part in parts) for i in (0, 1))
    ops = nvtx.with_columns(
        name=Text(shown.codes[names.codes], shown.values), input_shapes=Text(shapes.codes[names.codes], shapes.values),
        input_types=Text.constant("", len(nvtx)),
    )  # fmt: skip
    return nvtx.take(~is_op), ops.take(is_op)


def _op_parts(text: str) -> tuple[str, str] | None:
    """Name and shapes of an op; None for a user's range. `aten::add, seq = 7, sizes = [[2], []]`."""
    details = _OP_DETAILS.search(text)
    name = text[: details.start()] if details else text
    if not _is_op(name):
        return None
    sizes = _OP_SIZES.search(text) if details else None
    return name, sizes[1] if sizes else ""


@lru_cache(maxsize=65536)
def _is_op(name: str) -> bool:
    return _OP.search(name) is not None


# --- what is said of the recording ---


def _recorded(tables: Tables, frames: Mapping[str, Frame]) -> set[str]:
    """Signals with a table that is whole. On the device any work proves that all of it was traced."""
    database, lost = tables.database, tables.unreadable
    recorded: set[str] = set()
    if any(table in lost or database.has_rows(table) for table in (_KERNEL, _GRAPH, _MEMCPY, _MEMSET)):
        recorded |= set() if {_KERNEL, _GRAPH} & lost.keys() else {"kernels", "collectives"}
        recorded |= set() if {_MEMCPY, _MEMSET} & lost.keys() else {"copies"}
    else:
        tables.notes.append(f"No GPU activity was recorded in {database.path.name}.")
    recorded |= {"calls"} if _CALLS in database.tables and _CALLS not in lost else set()
    recorded |= {"ranges"} if _was_nvtx_traced(database) and _NVTX not in lost else set()
    recorded |= {"ops"} if len(frames["ops"]) else set()
    recorded |= {"os_calls"} if database.has_rows(_OS_CALLS) and _OS_CALLS not in lost else set()
    return recorded | ({"overheads"} if _OVERHEAD in database.tables and _OVERHEAD not in lost else set())


def _was_nvtx_traced(database: Database) -> bool:
    told = {
        str(value).lower()
        for (value,) in database.rows("META_DATA_CAPTURE", "value", "name LIKE '%:COLLECT_NVTX_TRACE'")
    }
    return "true" in told or database.has_rows(_NVTX) or (_NVTX in database.tables and not told)


def _version(database: Database) -> str:
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for (value,) in database.rows(table, "value", "name = 'EXPORT_PRODUCT_VERSION'"):
            return str(value)
    return ""


def _devices(database: Database, frames: Mapping[str, Frame]) -> list[Device]:
    known = _gpus(database)
    places: set[tuple[int, int]] = set()
    for signal in ("kernels", "collectives", "copies"):
        frame = frames[signal]
        places.update(
            (rank, d) for rank in _occurring(frame["rank"]) for d in _occurring(frame.of(rank=rank)["device"])
        )
    return [known[device](rank, device) for rank, device in sorted(places) if device in known]


def _gpus(database: Database) -> dict[int, Callable[[int, int], Device]]:
    """By nsys's own number, which kernels carry; by CUDA's where that one is not in the table."""
    columns = database.columns_of("TARGET_INFO_GPU")
    if not {"id", "name"} <= columns:
        return {}
    wanted = ("smCount", "computeMajor", "computeMinor", "totalMemory", "memoryBandwidth")
    numbers = ", ".join(f"CAST(coalesce({name}, 0) AS INTEGER)" if name in columns else "0" for name in wanted)
    rows = database.rows("TARGET_INFO_GPU", f"id, {'cuDevice' if 'cuDevice' in columns else 'id'}, name, {numbers}")
    by_cuda = {row[1]: _device_maker(row) for row in reversed(rows)}
    return {
        number: make
        for number, make in (by_cuda | {row[0]: _device_maker(row) for row in rows}).items()
        if isinstance(number, int)
    }


def _device_maker(row: tuple[object, ...]) -> Callable[[int, int], Device]:
    sms, major, minor, memory, bandwidth = (int(str(value)) for value in row[3:])
    return lambda rank, device: Device(rank, device, str(row[2] or ""), sms, (major, minor), memory, bandwidth)


def _thread_names(database: Database, ranks: _Ranks) -> dict[tuple[int, int], str]:
    found = [row for row in database.rows("ThreadNames", "globalTid, nameId") if all(isinstance(v, int) for v in row)]
    named = {((int(str(t)) >> 24) & 0xFFFFFF, int(str(t)) & 0xFFFFFF): int(str(n)) for t, n in found}
    ours = {place: number for place, number in named.items() if place[0] in ranks.of_process}
    names = database.names(sorted(set(ours.values())))
    return {place: names[number] for place, number in ours.items() if number in names}


def _note_losses(
    tables: Tables, ranks: _Ranks, host: Mapping[str, tuple[Columns, Text]], *, is_gpu_recorded: bool
) -> None:
    if len(ranks.of_process) > 1:
        tables.notes.append("Nsight Systems does not record rank numbers: ranks are numbered by device.")
    others = sum(int((ranks.ranks(ranks.processes(rows)) == UNKNOWN).sum()) for rows, _ in host.values())
    if others:
        tables.notes.append(f"{others:,} rows of processes without GPU work (data loaders, shells) are not shown.")
    if tables.database.is_damaged:
        tables.notes.append(f"`{tables.database.path.name}` is damaged or cut short: whole tables may be missing.")
    tables.notes.extend(_diagnostics(tables.database, _ERROR if is_gpu_recorded else _WARNING))


def _diagnostics(database: Database, severity: int) -> list[str]:
    """What nsys itself says went wrong with the collection: at most three sentences, and nothing private."""
    said = database.rows("DIAGNOSTIC_EVENT", "DISTINCT text", f"severity BETWEEN {severity} AND {_ERROR}")
    return [f"Nsight Systems says: {sentence}" for sentence in dict.fromkeys(_quotable(said))][:3]


def _quotable(said: list[tuple[object, ...]]) -> Iterator[str]:
    for (text,) in said:
        for sentence in re.split(r"(?<=[.!?])\s+|\n", str(text)):
            if _COLLECTION_TROUBLE.search(sentence) and not _PRIVATE.search(sentence):
                yield sentence.strip()[:200]

"""How do an export's rows become frames, and to which rank does each row belong?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import Ints, numbered, occurring
from perfdoctor.model.device_work import launch_rows
from perfdoctor.model.timeline import UNKNOWN, Column, Frame, Text
from perfdoctor.readers.nsys.range_names import op_parts
from perfdoctor.readers.nsys.tables import NONE, UNREADABLE, Columns, ExportTables
from perfdoctor.vocabulary.names.cuda import STREAM_WAIT, without_version
from perfdoctor.vocabulary.names.nccl import COLLECTIVE, collective_kind, data_type

_CUPTI = "CUPTI_ACTIVITY_KIND_"
KERNEL, GRAPH, MEMCPY, MEMSET, SYNC = (
    _CUPTI + kind for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET", "SYNCHRONIZATION")
)
SYNC_COLUMNS = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
_LARGEST_STREAM = 1 << 31
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
MEMORY_COLUMNS = ("start", "globalPid", "deviceId", "memKind", "memoryOperationType", "bytes")
#: nsys's enumeration: device, array, static. Pageable and pinned memory is on the host, managed memory on either.
_ON_DEVICE = (2, 3, 5)
_FREED = 1

_DIRECTIONS = {1: "h2d", 2: "d2h", 8: "d2d", 9: "h2h", 10: "p2p", 11: "h2d", 12: "d2h", 13: "d2d"}
#: Moves of managed memory's pages between host and device, whatever memory kinds the row contains.
_PAGE_MOVES, _MANAGED = (11, 12), 4
_HOST_MEMORY = {0: "pageable", 1: "pinned", 4: "managed", 6: "managed", 2: "none", 3: "none", 5: "none"}


def with_process(rows: Columns, packed: str) -> Columns:
    """The rows with their `process`, which is bits 24 to 47 of the column `packed`; UNKNOWN where there is none."""
    values = rows[packed]
    return {**rows, "process": np.where(values == NONE, UNKNOWN, (values >> 24) & 0xFFFFFF)}


# --- ranks ---


class Ranks(Struct, frozen=True):
    """The rank of each process. Rows without a process belong to `default_process`."""

    of_process: Mapping[int, int]
    default_process: int

    @classmethod
    def of(
        cls, device: Mapping[str, Columns], host: Mapping[str, tuple[Columns, Text]], known: Mapping[int, int]
    ) -> Ranks:
        """`known` ranks by process; other processes with GPU work by lowest device; else the one with most ranges."""
        busiest = next(
            (p for s in ("nvtx", "calls", "os_calls") if (p := _most_frequent(host[s][0])) is not None), None
        )
        caller = _most_frequent(host["calls"][0])
        default_process = caller if caller is not None else busiest or 0
        lowest: dict[int, int] = {}
        for rows in device.values():
            for process in occurring(rows["process"]):
                first = int(_or(rows["deviceId"][rows["process"] == process], 0).min())
                owner = default_process if process == UNKNOWN else process
                lowest[owner] = min(lowest.get(owner, first), first)
        if not lowest and not known:
            return cls({} if busiest is None else {busiest: 0}, busiest or 0)
        others = sorted(lowest.keys() - known.keys(), key=lambda process: (lowest[process], process))
        free = (number for number in count() if number not in known.values())
        return cls({**known, **dict(zip(others, free, strict=False))}, default_process or next(iter(known), 0))

    def processes(self, rows: Columns) -> Ints:
        """The process of each row; rows without one belong to the only rank's, else to `default_process`."""
        only = next(iter(self.of_process)) if len(self.of_process) == 1 else self.default_process
        return np.where(rows["process"] == UNKNOWN, only, rows["process"])

    def ranks(self, processes: Ints) -> Ints:
        """The rank of each process, UNKNOWN for those that are no rank."""
        result = np.full(processes.size, UNKNOWN, dtype=np.int64)
        for process, rank in self.of_process.items():
            result[processes == process] = rank
        return result


def _most_frequent(rows: Columns) -> int | None:
    processes, codes = numbered(rows["process"][rows["process"] != UNKNOWN])
    return int(processes[np.bincount(codes).argmax()]) if processes.size else None


# --- frames of the device ---


def device_frames(tables: ExportTables, device: Mapping[str, Columns], ranks: Ranks) -> dict[str, Frame]:
    kernels = _kernels(tables, device[KERNEL], ranks)
    if device[GRAPH]["start"].size:
        kernels = Frame.join([kernels, _graphs(device[GRAPH], ranks)])
    is_collective = kernels.name.matches(COLLECTIVE)
    return {
        "kernels": kernels.take(~is_collective) if is_collective.any() else kernels,
        "collectives": _collectives(kernels.take(is_collective)),
        "copies": Frame.join([_memcpy(device[MEMCPY], ranks), _memset(device[MEMSET], ranks)]),
    }


def _place(rows: Columns, ranks: Ranks) -> dict[str, Column]:
    process = ranks.processes(rows)
    return {
        "rank": ranks.ranks(process), "device": _or(rows["deviceId"], 0), "stream": _or(rows["streamId"]),
        "process": process, "start_ns": rows["start"], "end_ns": rows["end"], "correlation": _or(rows["correlationId"]),
    }  # fmt: skip


def _kernels(tables: ExportTables, rows: Columns, ranks: Ranks) -> Frame:
    name = np.where(rows["demangledName"] != NONE, rows["demangledName"], rows["shortName"])
    static, dynamic = rows["staticSharedMemory"], rows["dynamicSharedMemory"]
    shared = np.where((static == NONE) | (dynamic == NONE), UNKNOWN, static + dynamic)
    return Frame({
        **_place(rows, ranks), "name": tables.text(name), "blocks": _product(rows, "grid"),
        "threads_per_block": _product(rows, "block"), "is_graph": np.zeros(name.size, dtype=bool),
        "shared_memory_bytes": shared,
    })  # fmt: skip


def _graphs(rows: Columns, ranks: Ranks) -> Frame:
    unknown = np.full(rows["start"].size, UNKNOWN, dtype=np.int64)
    graphs, codes = numbered(rows["graphId"])
    names = ["CUDA graph" if graph == NONE else f"CUDA graph {graph}" for graph in graphs.tolist()]
    return Frame({
        **_place(rows, ranks), "name": Text(codes.astype(np.int32), names), "blocks": unknown,
        "threads_per_block": unknown, "is_graph": np.ones(unknown.size, dtype=bool), "shared_memory_bytes": unknown,
    })  # fmt: skip


def _collectives(kernels: Frame) -> Frame:
    names, unknown = kernels.name, np.full(len(kernels), UNKNOWN, dtype=np.int64)
    common = ("rank", "device", "stream", "process", "start_ns", "end_ns", "correlation", "name", "blocks")
    return Frame({
        **{column: kernels.columns[column] for column in common}, "kind": names.mapped(collective_kind),
        "bytes": unknown, "sent_bytes": unknown, "group_name": Text.constant("", len(kernels)), "group_size": unknown,
        "peers": Text.constant("", len(kernels)), "data_type": names.mapped(data_type),
    })  # fmt: skip


def _memcpy(rows: Columns, ranks: Ranks) -> Frame:
    direction = _named(rows["copyKind"], _DIRECTIONS)
    host_side = np.where(direction.equals("h2d") | direction.equals("h2h"), rows["srcKind"], rows["dstKind"])
    host_side = np.where(np.isin(rows["copyKind"], _PAGE_MOVES), _MANAGED, host_side)
    between_devices = direction.equals("d2d") | direction.equals("p2p")
    memory = _named(np.where(between_devices, 2, host_side), _HOST_MEMORY)
    names = direction.mapped(lambda value: f"memcpy {value}")
    return _copies(rows, ranks, name=names, direction=direction, host_memory=memory)


def _memset(rows: Columns, ranks: Ranks) -> Frame:
    count = rows["start"].size
    memset, none = Text.constant("memset", count), Text.constant("none", count)
    return _copies(rows, ranks, name=memset, direction=memset, host_memory=none)


def _copies(rows: Columns, ranks: Ranks, **text: Text) -> Frame:
    return Frame({**_place(rows, ranks), "bytes": _or(rows["bytes"]), **text}).sorted()


def _named(values: Ints, words: Mapping[int, str]) -> Text:
    found, codes = numbered(values)
    return Text(codes.astype(np.int32), [words.get(value, "unknown") for value in found.tolist()]).mapped(str)


def _or(values: Ints, otherwise: int = UNKNOWN) -> Ints:
    return np.where(values == NONE, otherwise, values)


def _product(rows: Columns, what: str) -> Ints:
    sides = [rows[f"{what}{axis}"] for axis in "XYZ"]
    unknown = np.zeros(sides[0].size, dtype=bool)
    for side in sides:
        unknown |= (side <= 0) | (side >= 1 << 31)
    product: Ints = sides[0] * sides[1] * sides[2]
    product[unknown] = UNKNOWN
    return product


def stream_waits(tables: ExportTables, ranks: Ranks, calls: Frame) -> Frame:
    """Rows of `stream_waits`: the synchronizations in which a stream waits for an event, of processes that are ranks.

    The numbers of their kinds differ between versions, so the calls that made them say which they are. On which stream
    the event was recorded is not in the table.
    """
    try:
        rows = with_process(tables.database.integers(SYNC, SYNC_COLUMNS), "globalPid")
    except UNREADABLE:
        return Frame.empty("stream_waits")
    process, rank = rows["process"], ranks.ranks(rows["process"])
    known = (rows["start"] != NONE) & (rows["end"] >= rows["start"]) & (rows["correlationId"] != NONE)
    known &= (rows["streamId"] >= 0) & (rows["streamId"] < _LARGEST_STREAM) & (rank != UNKNOWN)
    found = Frame({
        "rank": rank, "process": process, "device": np.maximum(rows["deviceId"], 0),
        "stream": rows["streamId"], "start_ns": rows["start"], "end_ns": rows["end"],
        "correlation": rows["correlationId"], "awaited_stream": np.full(process.size, UNKNOWN, np.int64),
        "name": Text.constant("wait", process.size),
    }).take(known).sorted()  # fmt: skip
    call = launch_rows(found, calls)
    return found.take((call != UNKNOWN) & np.append(calls.name.matches(STREAM_WAIT), False)[call])


def device_memory(tables: ExportTables, ranks: Ranks) -> Frame:
    """Rows of `device_memory`: what CUDA had allocated after each change (nsys --cuda-memory-usage=true), of ranks.

    This includes what torch's allocator reserves and what cuBLAS, cuDNN and NCCL allocate themselves. Allocations made
    before the recording are not included; if they are freed during it, the total begins at so much more.
    """
    try:
        rows = with_process(tables.database.integers(MEMORY, MEMORY_COLUMNS), "globalPid")
    except UNREADABLE:
        return Frame.empty("device_memory")
    rank = ranks.ranks(rows["process"])
    keep = (rank != UNKNOWN) & (rows["start"] != NONE) & np.isin(rows["memKind"], _ON_DEVICE) & (rows["bytes"] >= 0)
    order = np.flatnonzero(keep)[np.argsort(rows["start"][keep], kind="stable")]
    rank, device = rank[order], np.maximum(rows["deviceId"][order], 0)
    changes = np.where(rows["memoryOperationType"][order] == _FREED, -1, 1) * rows["bytes"][order]
    total = np.zeros(order.size, np.int64)  # the running sum of each rank and device, never below 0
    for place in set(zip(rank.tolist(), device.tolist(), strict=True)):
        own = (rank == place[0]) & (device == place[1])
        held = changes[own].cumsum()
        total[own] = held - min(int(held.min()), 0)
    return Frame({
        "rank": rank, "process": rows["process"][order], "device": device, "start_ns": rows["start"][order],
        "end_ns": rows["start"][order], "bytes": total, "name": Text.constant("handed out", order.size),
    })  # fmt: skip


# --- frames of the host ---


def host_frames(host: Mapping[str, tuple[Columns, Text]], ranks: Ranks) -> dict[str, Frame]:
    frames = {signal: _host_frame(rows, names, ranks) for signal, (rows, names) in host.items() if signal != "calls"}
    ranges, ops = split_ops(frames.pop("nvtx"))
    return {**frames, "calls": _calls(*host["calls"], ranks), "ranges": ranges, "ops": ops}


def _host_frame(rows: Columns, names: Text, ranks: Ranks, **more: Column) -> Frame:
    """Rows of processes that are ranks; those of data loaders and shells are counted in a note."""
    process = ranks.processes(rows)
    rank = ranks.ranks(process)
    thread = np.where(rows["globalTid"] == NONE, UNKNOWN, rows["globalTid"] & 0xFFFFFF)
    frame = Frame({
        "rank": rank, "process": process, "thread": thread, "start_ns": rows["start"], "end_ns": rows["end"],
        "name": names, **more,
    })  # fmt: skip
    return frame if (rank != UNKNOWN).all() else frame.take(rank != UNKNOWN)


def _calls(rows: Columns, names: Text, ranks: Ranks) -> Frame:
    """Rows of `calls`. Some versions write a call twice, with and without its version suffix: the inner one goes."""
    plain = names.mapped(without_version)
    calls = _host_frame(rows, plain, ranks, correlation=_or(rows["correlationId"]))
    if len(plain.values) == len(names.values):
        return calls
    order = np.lexsort((-calls.end_ns, calls.start_ns, calls["correlation"], calls["process"]))
    twins = calls.take(order)
    same = np.ones(max(len(twins) - 1, 0), dtype=bool)
    for column in (twins["process"], twins["correlation"], twins.name.codes):
        same &= column[1:] == column[:-1]
    same &= (twins["correlation"][1:] != UNKNOWN) & (twins.end_ns[1:] <= twins.end_ns[:-1])
    return twins.take(np.append(True, ~same)) if same.any() else calls


def split_ops(nvtx: Frame) -> tuple[Frame, Frame]:
    """The user's ranges, and the ops, which emit_nvtx writes as ranges with details behind the name."""
    codes, parts = nvtx.name.codes, [op_parts(text) for text in nvtx.name.values]
    is_op = np.array([part is not None for part in parts], bool).take(codes)
    shown, shapes = (Text.of(part[i] if part else "" for part in parts) for i in (0, 1))
    ops = nvtx.with_columns(
        name=Text(shown.codes.take(codes), shown.values), input_shapes=Text(shapes.codes.take(codes), shapes.values),
        input_types=Text.constant("", len(nvtx)), input_values=Text.constant("", len(nvtx)),
    )  # fmt: skip
    ranges = nvtx.take(~is_op)
    return ranges.with_columns(name=ranges.name.trimmed()), ops.take(is_op)

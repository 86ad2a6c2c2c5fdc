"""What did Nsight Systems record? Its SQLite export, of any schema from 2.9 on, as a Timeline.

Columns are taken from the table as it is, since they come and go between versions; tables exist only where something was
recorded. Process and thread are packed into `globalTid` (bits 24-47 and 0-23). Memory kinds are nsys's own enumeration:
0 is pageable, 1 is pinned. Kernels of a CUDA graph traced as a whole are one row in GRAPH_TRACE and count as busy.
Rank numbers are not recorded: each process with GPU work is a rank, in the order of its lowest device. Bytes of
collectives are in NVTX payloads only and stay UNKNOWN. The environment, the host's and the user's name, which the export
holds in three places, are never read.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from perfdoctor.errors import PerfdoctorError
from perfdoctor.ingest.nsys_tables import Database, Ints
from perfdoctor.timeline.kernel_names import COLLECTIVE, collective_kind
from perfdoctor.timeline.model import UNKNOWN, Device, Frame, Source, Text, Timeline

Columns = dict[str, Ints]

#: No time in an export: "the row has none". (UNKNOWN is -1, which a clock that starts at 0 may well show.)
_NO_TIME = np.iinfo(np.int64).min

_DIRECTIONS = {1: "h2d", 2: "d2h", 8: "d2d", 9: "h2h", 10: "p2p"}
_HOST_MEMORY = {0: "pageable", 1: "pinned", 4: "managed", 6: "managed"}
_CALL_VERSION = re.compile(r"(_v\d+)+$")
#: NVTX ranges that torch.autograd.profiler.emit_nvtx writes: they are ops.
_OP = re.compile(
    r"^(aten|autograd|torch|c10|c10d|prims|quantized|profiler|torchvision|fbgemm|inductor|_c10d_functional)::|^\w+Backward\d*(,|$)"
)
_OP_DETAILS = re.compile(r", (op_id|seq|input_op_ids|sizes) = .*$")
_OP_SIZES = re.compile(r", sizes = (\[.*\])")
_PUSH_POP, _START_END = 59, 60
_DATA_TYPE = re.compile(
    r"_(float|half|bfloat16|double|u?int\d+_t|f16|f32|f64|bf16|i8|u8|i32|u32|i64|u64)(?![a-z0-9])", re.IGNORECASE
)
_COLLECTION_TROUBLE = re.compile(r"not (be )?collected|not supported|no cuda (events|kernels)|cupti", re.IGNORECASE)
_PATH_OR_ASSIGNMENT = re.compile(r"[/\\~@=]")


def is_export(database: Database) -> bool:
    """Does the database look like one that nsys wrote?"""
    return "StringIds" in database and (
        "META_DATA_EXPORT" in database or "EXPORT_META_DATA" in database or "ANALYSIS_DETAILS" in database
    )


def read(path: Path) -> Timeline:
    """One Timeline of one export. Raises PerfdoctorError for a damaged file and for a database of something else."""
    database = Database.open(path)
    try:
        if not is_export(database):
            raise PerfdoctorError(
                f"{path.name} is a SQLite file, but not an export of Nsight Systems",
                do="Pass a .nsys-rep, or what `nsys export --type sqlite` made of it.",
            )
        return _Export(database).timeline()
    finally:
        database.connection.close()


@dataclass
class _Export:
    """One export while it is being read: its strings, and what had to be dropped."""

    database: Database
    notes: list[str] = field(default_factory=list)

    def timeline(self) -> Timeline:
        device_rows = {kind: read() for kind, read in self._device_readers().items()}
        host_rows = {signal: read() for signal, read in self._host_readers().items()}
        ranks = self._ranks(device_rows, host_rows)
        kernels = Frame.join([self._kernels(device_rows["kernel"], ranks), self._graphs(device_rows["graph"], ranks)])
        is_collective = kernels.name.matches(COLLECTIVE)
        frames = {
            "kernels": kernels.take(~is_collective),
            "collectives": _collectives(kernels.take(is_collective)),
            "copies": Frame.join(
                [self._memcpy(device_rows["memcpy"], ranks), self._memset(device_rows["memset"], ranks)]
            ),
            **{signal: self._host_frame(rows, ranks) for signal, rows in host_rows.items()},
        }
        frames["calls"] = _without_twins(
            frames["calls"].with_columns(correlation=_kept(host_rows["calls"], ranks, "correlationId"))
        )
        frames["ranges"], frames["ops"] = _split_ops(frames.pop("nvtx"))
        self._note_ranks(ranks, host_rows)
        self._note_diagnostics()
        return Timeline.build(
            frames,
            self._recorded(frames),
            sources=[Source("nsys", self.database.path.name, self._version(), tuple(sorted(set(ranks.values()))))],
            devices=self._devices(frames, ranks),
            thread_names=self._thread_names(ranks),
            notes=self.notes,
        )

    # ---- rows -------------------------------------------------------------------------------------------------

    def _rows(self, table: str, wanted: Sequence[str]) -> Columns:
        """The rows of a table that have a start and do not end before it, with process and thread unpacked."""
        wanted = ("start", "end", *wanted)
        empty = {name: np.empty(0, np.int64) for name in wanted}
        if table not in self.database:
            return empty
        try:
            rows = self.database.integers(table, wanted, _NO_TIME)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            self.notes.append(f"Table {table} of {self.database.path.name} cannot be read ({error}): it is left out.")
            return empty
        assert rows is not None
        good = (rows["start"] != _NO_TIME) & (rows["end"] >= rows["start"])
        if not good.all():
            dropped = int((~good).sum())
            self.notes.append(
                f"{dropped} row{'s' * (dropped > 1)} of {table} have no end, or end before they start: dropped."
            )
            rows = {name: values[good] for name, values in rows.items()}
        return rows

    def _device_readers(self) -> dict[str, Callable[[], Columns]]:
        common = ("deviceId", "streamId", "correlationId", "globalPid")
        grid = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        return {
            "kernel": lambda: self._rows("CUPTI_ACTIVITY_KIND_KERNEL", (*common, *grid, "demangledName", "shortName")),
            "graph": lambda: self._timed("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*common, "graphId")),
            "memcpy": lambda: self._rows(
                "CUPTI_ACTIVITY_KIND_MEMCPY", (*common, "bytes", "copyKind", "srcKind", "dstKind")
            ),
            "memset": lambda: self._rows("CUPTI_ACTIVITY_KIND_MEMSET", (*common, "bytes")),
        }

    def _host_readers(self) -> dict[str, Callable[[], Columns]]:
        return {
            "calls": lambda: self._named(
                self._rows("CUPTI_ACTIVITY_KIND_RUNTIME", ("globalTid", "correlationId", "nameId"))
            ),
            "nvtx": self._nvtx,
            "os_calls": lambda: self._named(self._rows("OSRT_API", ("globalTid", "nameId"))),
            "overheads": lambda: self._named(self._rows("PROFILER_OVERHEAD", ("globalTid", "nameId"))),
        }

    def _timed(self, table: str, wanted: Sequence[str]) -> Columns:
        """Without the rows whose start and end are both 0: CUPTI's way to say that it took no time stamp."""
        rows = self._rows(table, wanted)
        known = (rows["start"] != 0) | (rows["end"] != 0)
        if not known.all():
            self.notes.append(f"{int((~known).sum())} launches of CUDA graphs carry no time: dropped.")
        return {name: values[known] for name, values in rows.items()}

    def _named(self, rows: Columns) -> Columns:
        return {**rows, "text": rows["nameId"]}

    def _nvtx(self) -> Columns:
        """Push/pop and start/end ranges. A name stands in the row itself or, by id, in StringIds."""
        table = "NVTX_EVENTS"
        columns = self.database.columns_of(table)
        if not {"start", "end", "eventType", "globalTid"} <= columns:
            return {name: np.empty(0, np.int64) for name in ("start", "end", "globalTid", "text")}
        unended = self.database.rows(
            f'SELECT count(*) FROM "{self.database.tables[table]}" WHERE eventType IN ({_PUSH_POP}, {_START_END}) AND "end" IS NULL'
        )
        if unended and unended[0][0]:
            self.notes.append(f"{unended[0][0]} NVTX ranges were still open when the recording ended: dropped.")
        rows = self._nvtx_rows(
            table, "textId" if "textId" in columns else "NULL", "text" if "text" in columns else "NULL"
        )
        return rows

    def _nvtx_rows(self, table: str, text_id: str, text: str) -> Columns:
        found = self.database.rows(
            f'SELECT start, "end", globalTid, coalesce({text_id}, {UNKNOWN}), {text} FROM "{self.database.tables[table]}"'
            f' WHERE eventType IN ({_PUSH_POP}, {_START_END}) AND "end" >= start'
        )
        # Names that stand in the row get ids of their own, below every id of StringIds.
        own: dict[str, int] = {}
        ids = [
            int(row[3]) if row[4] is None else -2 - own.setdefault(str(row[4]), len(own))  # type: ignore[call-overload]
            for row in found
        ]
        self._own_names = {-2 - index: name for name, index in own.items()}
        numbers = np.array([row[:3] for row in found], dtype=np.int64).reshape(-1, 3)
        return {
            "start": numbers[:, 0],
            "end": numbers[:, 1],
            "globalTid": numbers[:, 2],
            "text": np.array(ids, dtype=np.int64),
        }

    # ---- names ------------------------------------------------------------------------------------------------

    def text(self, ids: Ints, clean: Callable[[str], str] = str) -> Text:
        """Names of StringIds by id; only those that occur are looked up."""
        unique, codes = np.unique(ids, return_inverse=True)
        known = dict(getattr(self, "_own_names", {}))
        for batch in np.array_split(unique, max(unique.size // 500, 1)):
            listed = ",".join(str(number) for number in batch.tolist())
            known.update(
                {
                    int(i): str(v)
                    for i, v in self.database.rows(f"SELECT id, value FROM StringIds WHERE id IN ({listed})")
                }
            )  # type: ignore[call-overload]
        return Text(codes.astype(np.int32).reshape(-1), [known.get(number, "") for number in unique.tolist()]).mapped(
            clean
        )

    # ---- ranks ------------------------------------------------------------------------------------------------

    def _ranks(self, device_rows: dict[str, Columns], host_rows: dict[str, Columns]) -> dict[int, int]:
        """Process to rank: processes with GPU work by their lowest device; without any, the one with most ranges."""
        lowest: dict[int, int] = {}
        for rows in device_rows.values():
            for process, device in np.unique(
                np.stack((_process(rows["globalPid"]), rows["deviceId"])), axis=1
            ).T.tolist():
                lowest[process] = min(lowest.get(process, device), device)
        if lowest:
            return {process: rank for rank, process in enumerate(sorted(lowest, key=lambda p: (lowest[p], p)))}
        for signal in ("nvtx", "os_calls", "calls"):
            processes, counts = np.unique(_process(host_rows[signal]["globalTid"]), return_counts=True)
            if processes.size:
                return {int(processes[counts.argmax()]): 0}
        return {0: 0}

    def _note_ranks(self, ranks: dict[int, int], host_rows: dict[str, Columns]) -> None:
        if len(ranks) > 1:
            self.notes.append("Nsight Systems does not record rank numbers: ranks are numbered by device.")
        others = sum(int((~np.isin(_process(rows["globalTid"]), list(ranks))).sum()) for rows in host_rows.values())
        if others:
            self.notes.append(f"{others} rows of other processes (data loaders, shells) are not shown.")

    # ---- frames -----------------------------------------------------------------------------------------------

    def _device_columns(self, rows: Columns, ranks: dict[int, int]) -> dict[str, Ints | Text]:
        process = _process(rows["globalPid"])
        return {
            "rank": _ranked(process, ranks), "device": _or_unknown(rows["deviceId"], 0), "stream": _or_unknown(rows["streamId"]),
            "process": process, "start_ns": rows["start"], "end_ns": rows["end"], "correlation": _or_unknown(rows["correlationId"]),
        }  # fmt: skip

    def _kernels(self, rows: Columns, ranks: dict[int, int]) -> Frame:
        name = np.where(rows["demangledName"] != _NO_TIME, rows["demangledName"], rows["shortName"])
        return Frame({
            **self._device_columns(rows, ranks), "name": self.text(name),
            "blocks": _product(rows, "grid"), "threads_per_block": _product(rows, "block"),
            "is_graph": np.zeros(name.size, dtype=bool),
        })  # fmt: skip

    def _graphs(self, rows: Columns, ranks: dict[int, int]) -> Frame:
        count = rows["start"].size
        unknown = np.full(count, UNKNOWN, dtype=np.int64)
        names = Text.of("CUDA graph" if number < 0 else f"CUDA graph {number}" for number in rows["graphId"].tolist())
        return Frame({
            **self._device_columns(rows, ranks), "name": names, "blocks": unknown, "threads_per_block": unknown,
            "is_graph": np.ones(count, dtype=bool),
        })  # fmt: skip

    def _memcpy(self, rows: Columns, ranks: dict[int, int]) -> Frame:
        direction = Text.of(_DIRECTIONS.get(kind, "unknown") for kind in rows["copyKind"].tolist())
        host_kind = np.where(direction.equals("h2d"), rows["srcKind"], rows["dstKind"])
        on_host = direction.where(lambda value: value in ("h2d", "d2h", "h2h", "unknown"))
        memory = Text.of(
            _HOST_MEMORY.get(kind, "unknown") if host else "none"
            for kind, host in zip(host_kind.tolist(), on_host.tolist(), strict=True)
        )
        names = Text(direction.codes, [f"memcpy {value}" for value in direction.values])
        return self._copy_frame(rows, ranks, names, direction, memory)

    def _memset(self, rows: Columns, ranks: dict[int, int]) -> Frame:
        count = rows["start"].size
        return self._copy_frame(
            rows, ranks, Text.constant("memset", count), Text.constant("memset", count), Text.constant("none", count)
        )

    def _copy_frame(self, rows: Columns, ranks: dict[int, int], name: Text, direction: Text, memory: Text) -> Frame:
        device = self._device_columns(rows, ranks)
        return Frame(
            {**device, "name": name, "bytes": _or_unknown(rows["bytes"]), "direction": direction, "host_memory": memory}
        ).sorted()

    def _host_frame(self, rows: Columns, ranks: dict[int, int]) -> Frame:
        keep = np.isin(_process(rows["globalTid"]), list(ranks))
        packed = rows["globalTid"][keep]
        process = _process(packed)
        return Frame({
            "rank": _ranked(process, ranks), "process": process,
            "thread": np.where(packed == _NO_TIME, UNKNOWN, packed & 0xFFFFFF),
            "start_ns": rows["start"][keep], "end_ns": rows["end"][keep],
            "name": self.text(rows["text"][keep], lambda name: _CALL_VERSION.sub("", name)),
        })  # fmt: skip

    # ---- what is said of the recording ------------------------------------------------------------------------

    def _recorded(self, frames: dict[str, Frame]) -> list[str]:
        recorded = []
        if any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in self.database.tables):
            recorded += ["kernels", "copies", "collectives"]
        else:
            self.notes.append(
                f"No GPU activity was recorded in {self.database.path.name}: it holds no table of CUDA work."
            )
        tables = {
            "calls": "CUPTI_ACTIVITY_KIND_RUNTIME",
            "ranges": "NVTX_EVENTS",
            "os_calls": "OSRT_API",
            "overheads": "PROFILER_OVERHEAD",
        }
        recorded += [signal for signal, table in tables.items() if table in self.database]
        return [*recorded, "ops"] if len(frames["ops"]) else recorded

    def _version(self) -> str:
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if table in self.database:
                rows = self.database.rows(f"SELECT value FROM {table} WHERE name = 'EXPORT_PRODUCT_VERSION'")
                if rows:
                    return str(rows[0][0])
        return ""

    def _devices(self, frames: dict[str, Frame], ranks: dict[int, int]) -> list[Device]:
        known = self._gpus()
        places: set[tuple[int, int]] = set()
        for signal in ("kernels", "collectives", "copies"):
            frame = frames[signal]
            places |= set(zip(frame["rank"].tolist(), frame["device"].tolist(), strict=True))
        return [known[device](rank) for rank, device in sorted(places) if device in known]

    def _gpus(self) -> dict[int, Callable[[int], Device]]:
        columns = self.database.columns_of("TARGET_INFO_GPU")
        if not {"id", "name"} <= columns:
            return {}
        wanted = ("smCount", "computeMajor", "computeMinor", "totalMemory", "memoryBandwidth")
        fields = ", ".join(f"coalesce({name}, 0)" if name in columns else "0" for name in wanted)
        rows = self.database.rows(f"SELECT id, name, {fields} FROM TARGET_INFO_GPU")
        return {int(row[0]): _device_maker(row) for row in rows}  # type: ignore[call-overload]

    def _thread_names(self, ranks: dict[int, int]) -> dict[tuple[int, int], str]:
        if not {"nameId", "globalTid"} <= self.database.columns_of("ThreadNames"):
            return {}
        rows = self.database.rows("SELECT globalTid, value FROM ThreadNames JOIN StringIds ON StringIds.id = nameId")
        pairs = (((int(tid) >> 24) & 0xFFFFFF, int(tid) & 0xFFFFFF, str(name)) for tid, name in rows)  # type: ignore[call-overload]
        return {(process, thread): name for process, thread, name in pairs if process in ranks}

    def _note_diagnostics(self) -> None:
        """Quote what nsys itself says went wrong; a sentence that might carry a path or a setting is not quoted."""
        if not {"severity", "text"} <= self.database.columns_of("DIAGNOSTIC_EVENT"):
            return
        said = [
            str(row[0]) for row in self.database.rows("SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity >= 2")
        ]
        fitting = [
            text.strip() for text in said if _COLLECTION_TROUBLE.search(text) and not _PATH_OR_ASSIGNMENT.search(text)
        ]
        self.notes.extend(f"Nsight Systems says: {text[:200]}" for text in fitting[:3])


def _device_maker(row: Sequence[object]) -> Callable[[int], Device]:
    device, name, sms, major, minor, memory, bandwidth = row
    numbers = [int(value) for value in (device, sms, major, minor, memory, bandwidth)]  # type: ignore[call-overload]
    return lambda rank: Device(
        rank, numbers[0], str(name), numbers[1], (numbers[2], numbers[3]), numbers[4], numbers[5]
    )


def _process(packed: Ints) -> Ints:
    return np.where(packed == _NO_TIME, 0, (packed >> 24) & 0xFFFFFF)


def _ranked(process: Ints, ranks: dict[int, int]) -> Ints:
    result = np.full(process.size, UNKNOWN, dtype=np.int64)
    for known, rank in ranks.items():
        result[process == known] = rank
    return result


def _or_unknown(values: Ints, otherwise: int = UNKNOWN) -> Ints:
    return np.where(values == _NO_TIME, otherwise, values)


def _product(rows: Columns, what: str) -> Ints:
    sides = [rows[f"{what}{axis}"] for axis in "XYZ"]
    known = np.logical_and.reduce([side > 0 for side in sides])
    return np.where(known, np.prod([np.where(known, side, 1) for side in sides], axis=0), UNKNOWN).astype(np.int64)


def _collectives(kernels: Frame) -> Frame:
    names = kernels.name
    unknown = np.full(len(kernels), UNKNOWN, dtype=np.int64)
    columns = {
        name: kernels.columns[name]
        for name in ("rank", "device", "stream", "process", "start_ns", "end_ns", "correlation", "name")
    }
    return Frame({
        **columns, "kind": names.mapped(collective_kind), "bytes": unknown,
        "group": Text.constant("", len(kernels)), "group_size": unknown, "data_type": names.mapped(lambda name: found[1].lower() if (found := _DATA_TYPE.search(name)) else ""),
    })  # fmt: skip


def _kept(rows: Columns, ranks: dict[int, int], column: str) -> Ints:
    return _or_unknown(rows[column][np.isin(_process(rows["globalTid"]), list(ranks))])


def _without_twins(calls: Frame) -> Frame:
    """Some versions list a call twice, with and without its version suffix: the inner twin says nothing new."""
    key = np.stack((calls["process"], calls["correlation"], calls["thread"]))
    order = np.lexsort((-calls.end_ns, calls.start_ns, *key[::-1]))
    same = (key[:, order][:, 1:] == key[:, order][:, :-1]).all(axis=0) & (calls["correlation"][order][1:] != UNKNOWN)
    codes = calls.name.codes[order]
    inside = calls.end_ns[order][1:] <= calls.end_ns[order][:-1]
    twin = (
        np.append(False, same & inside & _same_name(calls.name, codes[1:], codes[:-1]))
        if len(calls)
        else np.zeros(0, bool)
    )
    keep = np.ones(len(calls), dtype=bool)
    keep[order[twin]] = False
    return calls.take(keep).sorted()


def _same_name(
    names: Text, left: np.ndarray[tuple[int], np.dtype[np.int32]], right: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    first = {name: code for code, name in reversed(list(enumerate(names.values)))}
    canonical = np.array([first[name] for name in names.values] or [0], dtype=np.int64)
    return canonical[left] == canonical[right]


def _split_ops(nvtx: Frame) -> tuple[Frame, Frame]:
    """User's ranges, and the ops that emit_nvtx wrote as ranges."""
    is_op = nvtx.name.matches(_OP)
    rows = nvtx.take(is_op)
    ops = rows.with_columns(
        name=rows.name.mapped(lambda name: _OP_DETAILS.sub("", name)),
        input_shapes=rows.name.mapped(lambda name: found[1] if (found := _OP_SIZES.search(name)) else ""),
        input_types=Text.constant("", len(rows)),
    )
    return nvtx.take(~is_op), ops

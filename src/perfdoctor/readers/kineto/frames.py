"""How do the groups of a Kineto trace become frames: process, copy direction, collective kind, ranges and ops apart?"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from perfdoctor.model.columns import constant
from perfdoctor.model.timeline import SIGNALS, UNKNOWN, Column, Frame, Ints, Text
from perfdoctor.patterns import regex
from perfdoctor.readers.collective_kinds import kinds_as_launched
from perfdoctor.readers.kineto import messages, modules
from perfdoctor.readers.kineto.columns import product
from perfdoctor.readers.kineto.counters import counters
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.names.nccl import LIBRARY_RANGE, collective_kind
from perfdoctor.vocabulary.names.python_code import OWN_AGENT, posix_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perfdoctor.readers.kineto.columns import EventTable

_DIRECTION = regex(r"(host|device|array|peer|[HDAP])to(host|device|array|peer|[HDAP])(?![a-z])", re.IGNORECASE)
#: Intel's PTI: memory of the device, of the host that is pinned (H) or not (M), and shared by both, which migrates.
_PTI_COPY = regex(r"^Memcpy ([MHDS])2([MHDS])\b")
_PTI_MEMORY = {"M": "pageable", "H": "pinned", "S": "managed"}
_BYTES_PER_ELEMENT = {
    "complexdouble": 16, "double": 8, "long": 8, "complexfloat": 8, "uint64": 8, "float": 4, "int": 4, "uint32": 4,
    "half": 2, "bfloat16": 2, "short": 2, "uint16": 2, "byte": 1, "char": 1, "bool": 1, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


_OF_RANGE = ("start_ns", "end_ns", "process", "thread")
_ON_DEVICE = ("kernels", "collectives", "copies")


class Hosts(Struct, frozen=True):
    """The processes of the host. Device rows hold the number of their device in place of a process."""

    processes: frozenset[int]
    main: int
    calls: EventTable | None

    @classmethod
    def of(cls, tables: Mapping[str, EventTable], labelled: set[int]) -> Hosts:
        """`main` is the process with most calls, else with most ops, else the one labelled CPU."""
        ops = tables.get("ops")
        listed = [tables["calls"]["process"]] if "calls" in tables else []
        listed += [ops["process"][ops["is_annotation"] == 0]] if ops else []
        listed = [each for each in listed if each.size] or [ops["process"] if ops else np.empty(0, np.int64)]
        numbers, counts = np.unique(listed[0], return_counts=True)
        main = int(numbers[counts.argmax()]) if numbers.size else min(labelled, default=UNKNOWN)
        known = frozenset(np.unique(np.concatenate(listed)).tolist()) | {main}
        calls = tables.get("calls")  # of which none may have a time
        return cls(known, main, calls if numbers.size > 1 and calls and calls.length else None)

    def launching(self, correlation: Ints) -> Ints:
        """The process that launched each piece of device work."""
        if self.calls is None:
            return constant(self.main, correlation.size)
        processes = np.full(correlation.size, self.main, np.int64)
        order = np.argsort(self.calls["correlation"], kind="stable")
        known = self.calls["correlation"][order]
        place = np.minimum(np.searchsorted(known, correlation), known.size - 1)
        matched = (known[place] == correlation) & (correlation != UNKNOWN)
        processes[matched] = self.calls["process"][order][place[matched]]
        return processes


def frames_of(tables: dict[str, EventTable], hosts: Hosts, rank: int) -> dict[str, Frame]:
    """The frames of all tables, which are taken out of `tables` one after another: memory never holds all twice."""
    frames: dict[str, Frame] = {}
    devices = {number for name in _ON_DEVICE if name in tables for number in np.unique(tables[name]["device"]).tolist()}

    def put(signal: str, table: EventTable, **more: Column) -> None:
        given = {**table.texts, "rank": constant(rank, table.length), **more}
        frames[signal] = Frame(
            {name: given[name] if name in given else table[name] for name in SIGNALS[signal].columns}
        )

    library, sent = None, None
    names = tables["collectives"].texts["collective"] if "collectives" in tables else None
    for signal, columns in _OF_DEVICE.items():
        if table := tables.pop(signal, None):
            put(signal, table, process=hosts.launching(table["correlation"]), **columns(table))
    if table := tables.pop("calls", None):
        put("calls", table, name=table.texts["name"].mapped(cuda_names.without_version))
    if found := _modules(tables, hosts, rank):
        frames["modules"] = found
    if table := tables.pop("ops", None):
        is_mark = table.texts["name"].matches(torch_names.MODULE)
        is_range = (table["is_annotation"] == 1) | table.texts["name"].matches(torch_names.OWN_RANGE)
        on_device = np.isin(table["process"], list(devices - hosts.processes)) | (table["thread"] == UNKNOWN)
        put("ranges", table.take(is_range & ~on_device & ~is_mark))
        library = table.take(table.texts["name"].matches(LIBRARY_RANGE) & ~on_device) if names is not None else None
        if names is not None:
            sent = table.take(~table.texts["message"].equals(""))
        table.keep(~is_range & ~is_mark)
        put("ops", table)
    if table := tables.pop("functions", None):
        table.texts["name"] = table.texts["name"].mapped(posix_path)
        table = table.take(~table.texts["name"].matches(OWN_AGENT))
        put("functions", table, **_own_place(table, hosts))
    if table := tables.pop("overheads", None):
        put("overheads", table, **_own_place(table, hosts))
    if table := tables.pop("totals", None):
        put("memory_totals", table.take((table["allocated_bytes"] >= 0) & (table["reserved_bytes"] > 0)))
    if table := tables.pop("counters", None):
        frames |= counters(table, rank)
    if names is not None:
        kinds = kinds_as_launched(frames, is_named=~names.equals(""))
        frames["collectives"] = frames["collectives"].with_columns(kind=kinds)
        if sent and sent.length and "calls" in frames:
            described = Frame({name: sent[name] for name in _OF_RANGE})
            known = messages.with_messages(
                frames["collectives"], frames["calls"], described, sent.texts["message"], _BYTES_PER_ELEMENT
            )
            frames["collectives"] = known
        if library and library.length and "calls" in frames:
            around = Frame({**{name: library[name] for name in _OF_RANGE}, **library.texts}).sorted()
            known = messages.completed(frames["collectives"], frames["calls"], around, _BYTES_PER_ELEMENT)
            frames["collectives"] = known
    return frames


def _modules(tables: Mapping[str, EventTable], hosts: Hosts, rank: int) -> Frame | None:
    """The rows of `modules`, from the agent's marks, else from recorded stacks. The tables are left as they are."""
    ops, functions = tables.get("ops"), tables.get("functions")
    found = modules.of_marks(ops, ops.texts["name"].matches(torch_names.MODULE), rank) if ops else None
    if found is None and functions:
        place = _own_place(functions, hosts)
        found = modules.of_functions(functions, place["process"], place["thread"], ops, rank)
    return found


def _own_place(table: EventTable, hosts: Hosts) -> dict[str, Ints]:
    """Process and thread of each row of the table: overheads and outermost Python frames have process 0 or -1 in it."""
    known = np.isin(table["process"], list(hosts.processes))
    return {
        "process": np.where(known, table["process"], hosts.main),
        "thread": np.where(known, table["thread"], UNKNOWN),
    }


def _launch_columns(table: EventTable) -> dict[str, Column]:
    """The size of each launch; torch.profiler shows the kernels of a graph, never a graph as a whole."""
    blocks, threads = (table.texts[column].numbers(product) for column in ("grid", "block"))
    return {"blocks": blocks, "threads_per_block": threads, "is_graph": np.zeros(table.length, dtype=bool)}


def _collective_columns(table: EventTable) -> dict[str, Column]:
    types, kernels, names = (table.texts[name] for name in ("data_type", "name", "collective"))
    # The framework's name says the kind; the kernel's does where that has none or is several in one ("coalesced").
    kinds = zip(names.mapped(collective_kind), kernels.mapped(collective_kind), strict=True)
    sizes = types.numbers(lambda value: _BYTES_PER_ELEMENT.get(value.lower(), 0))
    elements = np.maximum(table["elements_in"], table["elements_out"])
    is_known = (sizes > 0) & (elements >= 0) & (elements < 2**50)
    sent = table["elements_in"]
    return {
        **_launch_columns(table),
        "kind": Text.of(of_kernel if of_name == "other" else of_name for of_name, of_kernel in kinds),
        "bytes": np.where(is_known, elements * sizes, UNKNOWN),
        "sent_bytes": np.where(is_known & (sent >= 0), sent * sizes, UNKNOWN),
    }


def _copy_columns(table: EventTable) -> dict[str, Column]:
    pairs = [_copy_of(name, kind) for name, kind in zip(table.texts["name"], table.texts["kind"], strict=True)]
    return {"direction": Text.of(pair[0] for pair in pairs), "host_memory": Text.of(pair[1] for pair in pairs)}


@lru_cache(maxsize=1024)
def _copy_of(name: str, kind: str) -> tuple[str, str]:
    """The direction and host memory of "Memcpy HtoD (Pageable -> Device)"; ROCm may write them in `kind` only."""
    if "memset" in name.lower():
        return "memset", "none"
    if pti := _PTI_COPY.search(name):
        return _pti_copy(*pti.groups())
    found = _DIRECTION.search(name) or _DIRECTION.search(kind)
    if not found:
        return "unknown", "unknown"
    ends = [end.lower()[0].replace("a", "d") for end in found.groups()]
    if "h" not in ends:
        return ("p2p" if "p" in ends else "d2d"), "none"
    memory = next((known for known in ("pageable", "managed", "pinned") if known in name.lower()), "unknown")
    return f"{ends[0]}2{ends[1]}", memory


def _pti_copy(source: str, target: str) -> tuple[str, str]:
    """The direction and host memory of "Memcpy M2D (MEMORY -> DEVICE)"; what is shared counts as the host's."""
    ends = ("d" if end == "D" else "h" for end in (source, target))
    return "2".join(ends), _PTI_MEMORY.get(source) or _PTI_MEMORY.get(target, "none")


#: The frames of the device's work, and what makes the columns of each that are not in its table.
_OF_DEVICE: Mapping[str, Callable[[EventTable], dict[str, Column]]] = {
    "kernels": _launch_columns,
    "collectives": _collective_columns,
    "copies": _copy_columns,
    "stream_waits": lambda _: {},
}


def recorded_by(frames: Mapping[str, Frame]) -> set[str]:
    """Signals that torch.profiler recorded: one row proves that its whole activity was switched on."""
    recorded: set[str] = set()
    if any(signal in frames for signal in _ON_DEVICE):
        recorded |= set(_ON_DEVICE)
    if "ops" in frames:
        recorded |= {"ranges"} | ({"ops"} if len(frames["ops"]) else set())
    if len(frames.get("memory_totals", ())):
        recorded.add("memory_totals")
    recorded |= {name for name in ("gpu_counters", "other_gpu_counters") if len(frames.get(name, ()))}
    return recorded | (frames.keys() & {"calls", "functions", "modules", "overheads", "stream_waits"})

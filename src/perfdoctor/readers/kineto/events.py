"""Which fields of a Kineto trace's events are used, and to which group does each event belong?

Only these fields are decoded, batch by batch, straight into the columns of eight groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.readers.kineto.columns import InexactError, Rows, integer, integers, nanoseconds
from perfdoctor.vocabulary.names.nccl import COLLECTIVE

if TYPE_CHECKING:
    from perfdoctor.model.timeline import Ints


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that are used. Typed `Any`: writers differ, and one odd value must not lose a batch."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    awaited_stream: Any = msgspec.field(default=None, name="wait_on_stream")
    grid: msgspec.Raw = msgspec.Raw()
    block: msgspec.Raw = msgspec.Raw()
    bytes: Any = None
    kind: Any = None
    name: Any = None
    labels: Any = None
    dtype: Any = None
    identity: Any = msgspec.field(default=None, name="External id")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Concrete Inputs")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_size: Any = msgspec.field(default=None, name="Group size")
    members: Any = msgspec.field(default=None, name="Process Group Ranks")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")


_NO_ARGS = Args()
#: What torch.profiler calls the rows of the synchronizations in which a stream waits; others are calls as well.
_STREAM_WAIT = "Stream Wait Event"
#: c10::DeviceType::CUDA, which ROCm's builds use too.
_GPU = 1


class Event(msgspec.Struct, gc=False):
    """One event. Complete events (`ph` X) are recognised by their `dur`, metadata (`ph` M) by having no `cat`."""

    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """The same event with the exact decimals of its times."""

    ts: Decimal | None = None
    dur: Decimal | None = None


class Flow(msgspec.Struct, gc=False):
    """One end of a flow (an arrow in the viewer); its `id` is the correlation of the work that it points at."""

    ph: str = ""
    cat: str = ""
    id: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None


class ExactFlow(Flow, gc=False):
    """The same with the exact decimals of its time."""

    ts: Decimal | None = None


class Group(Rows):
    """The rows of one group. Each of `parts` adds some of its columns."""

    def __init__(self, *parts: Callable[[Group, list[Event], list[Args]], None]) -> None:
        super().__init__()
        self._parts = parts

    def add(self, events: list[Event], times: tuple[Ints, Ints]) -> None:
        args = [event.args or _NO_ARGS for event in events]
        self.put("start_ns", times[0])
        self.put("duration_ns", times[1])
        self.text("name", [event.name for event in events], len(events))
        for part in self._parts:
            part(self, events, args)


def _on_device(group: Group, events: list[Event], args: list[Args]) -> None:
    group.put("correlation", integers([arg.correlation for arg in args]))
    pairs = list(zip(events, args, strict=True))
    group.put("device", integers([event.pid if arg.device is None else arg.device for event, arg in pairs]))
    group.put("stream", integers([event.tid if arg.stream is None else arg.stream for event, arg in pairs]))


def _on_host(group: Group, events: list[Event], _: list[Args]) -> None:
    group.put("process", integers([event.pid for event in events]))
    group.put("thread", integers([event.tid for event in events]))


def _awaited(group: Group, _: list[Event], args: list[Args]) -> None:
    group.put("awaited_stream", integers([arg.awaited_stream for arg in args]))


def _launch_size(group: Group, _: list[Event], args: list[Args]) -> None:
    group.text("grid", map(bytes, [arg.grid for arg in args]), len(args))
    group.text("block", map(bytes, [arg.block for arg in args]), len(args))


def _copy(group: Group, _: list[Event], args: list[Args]) -> None:
    group.put("bytes", integers([arg.bytes for arg in args]))
    group.text("kind", (str(arg.kind or "") for arg in args), len(args))


def _collective(group: Group, _: list[Event], args: list[Args]) -> None:
    group.put("elements_in", integers([arg.elements_in for arg in args]))
    group.put("elements_out", integers([arg.elements_out for arg in args]))
    members = [_members(str(arg.members)) if arg.members else "" for arg in args]
    written = integers([arg.group_size for arg in args])
    listed = np.fromiter((text.count(",") + 1 if text else UNKNOWN for text in members), np.int64, len(args))
    group.put("group_size", np.where(written == UNKNOWN, listed, written))
    group.text("collective", (str(arg.collective or "") for arg in args), len(args))
    group.text("data_type", (str(arg.dtype or "") for arg in args), len(args))
    # Different groups may share a name ("mesh_tp"), so their members belong to the name.
    named = (str(arg.group_description or "") if arg.group in (None, "") else str(arg.group) for arg in args)
    group.text("group", (f"{name} {ranks}".strip() for name, ranks in zip(named, members, strict=True)), len(args))


@lru_cache(maxsize=4096)
def _members(ranks: str) -> str:
    """The ranks of a group, ascending; "" where the list is not whole: long ones are cut ("[0, 1, ..., 63]")."""
    try:
        whole = msgspec.json.decode(ranks, type=list[int])
    except msgspec.MsgspecError:
        return ""
    return str(sorted(set(whole))) if whole else ""


def _totals(group: Group, _: list[Event], args: list[Args]) -> None:
    group.put("device", integers([arg.device_id for arg in args]))
    group.put("allocated_bytes", integers([arg.allocated for arg in args]))
    group.put("reserved_bytes", integers([arg.reserved for arg in args]))


def _has_totals(event: Event) -> bool:
    """Is it a change of a GPU's memory that carries the allocator's totals? Host memory has no reserved bytes."""
    return (
        event.name == "[memory]"
        and event.args is not None
        and event.args.device_type == _GPU
        and bool(event.args.reserved)
    )


def _call(group: Group, _: list[Event], args: list[Args]) -> None:
    group.put("correlation", integers([arg.correlation for arg in args]))


def _op(group: Group, events: list[Event], args: list[Args]) -> None:
    group.text("input_shapes", map(bytes, [arg.shapes for arg in args]), len(args))
    group.text("input_types", map(bytes, [arg.types for arg in args]), len(args))
    values = (bytes(arg.values) if _has_settings(event.name) else b"" for event, arg in zip(events, args, strict=True))
    group.text("input_values", values, len(args))
    group.put("identity", integers([arg.identity for arg in args]))
    annotations = (event.cat == "user_annotation" for event in events)
    group.put("is_annotation", np.fromiter(annotations, np.int64, len(events)))


@lru_cache(maxsize=65536)
def _has_settings(op: str) -> bool:
    """Does its FLOP depend on inputs that are no tensors? Those of other ops are not kept, to save memory."""
    return "convolution" in op or "attention" in op or "attn" in op


_CATEGORIES = {
    "kernel": "kernels", "concurrent_kernel": "kernels", "mtia_ccp_events": "kernels",
    "memcpy": "copies", "gpu_memcpy": "copies", "memset": "copies", "gpu_memset": "copies",
    "runtime": "calls", "cuda_runtime": "calls", "cuda_driver": "calls",
    "operator": "ops", "cpu_op": "ops", "user_annotation": "ops",
    "python_function": "functions", "overhead": "overheads", "cpu_instant_event": "totals", "": "metadata",
    "cuda_sync": "stream_waits",
}  # fmt: skip


class _Puts(dict[str, Callable[[Event], None]]):
    """Category → function that takes its events; those of "" are dropped. Writers differ: `Kernel`, `xpu_runtime`."""

    def __init__(self, groups: Mapping[str, Callable[[Event], None]]) -> None:
        super().__init__()
        self._groups = groups

    def __missing__(self, category: str) -> Callable[[Event], None]:
        known = _CATEGORIES.get(category.lower(), "calls" if category.endswith(("_runtime", "_driver")) else "")
        self[category] = put = self._groups[known]
        return put


class Columns:
    """All groups of one trace, and the names that its metadata events give to processes and threads."""

    def __init__(self) -> None:
        self.groups: Mapping[str, Group] = {
            "kernels": Group(_on_device, _launch_size),
            "collectives": Group(_on_device, _launch_size, _collective),
            "copies": Group(_on_device, _copy),
            "calls": Group(_on_host, _call),
            "ops": Group(_on_host, _op),
            "functions": Group(_on_host),
            "overheads": Group(_on_host),
            "totals": Group(_on_host, _totals),
            "stream_waits": Group(_on_device, _awaited),
        }
        self.thread_names: dict[tuple[int, int], str] = {}
        self.host_labels: set[int] = set()
        self._is_collective: dict[str, bool] = {}

    def add(self, events: list[Event]) -> bool:
        """Sort a batch into its groups. False, with nothing added, if its times must be decoded as decimals."""
        sorted_events: dict[str, list[Event]] = {name: [] for name in (*self.groups, "metadata", "")}
        put = _Puts({group: rows.append for group, rows in sorted_events.items()})
        for event in events:
            put[event.cat](event)
        sorted_events["kernels"], sorted_events["collectives"] = self._split_kernels(sorted_events["kernels"])
        sorted_events["totals"] = list(filter(_has_totals, sorted_events["totals"]))
        sorted_events["stream_waits"] = [each for each in sorted_events["stream_waits"] if each.name == _STREAM_WAIT]
        filled = {name: rows for name in self.groups if (rows := sorted_events[name])}
        try:
            times = {name: _times(rows, instants=name == "totals") for name, rows in filled.items()}
        except InexactError:
            return False
        for name, rows in filled.items():
            self.groups[name].add(rows, times[name])
        self._add_names(sorted_events["metadata"])
        return True

    def _split_kernels(self, kernels: list[Event]) -> tuple[list[Event], list[Event]]:
        """The kernels that are not collectives, and those that are."""
        known = self._is_collective
        others: list[Event] = []
        collectives: list[Event] = []
        for event in kernels:
            name = event.name
            if name not in known:
                known[name] = COLLECTIVE.search(name) is not None
            (collectives if known[name] else others).append(event)
        return others, collectives

    def _add_names(self, events: list[Event]) -> None:
        for event in events:
            if event.args is None:
                continue
            if event.name == "thread_name" and isinstance(event.args.name, str):
                self.thread_names[integer(event.pid), integer(event.tid)] = event.args.name
            elif event.name == "process_labels" and event.args.labels == "CPU":
                self.host_labels.add(integer(event.pid))


def _times(events: list[Event], *, instants: bool) -> tuple[Ints, Ints]:
    """Starts and durations; those of instants are 0."""
    starts = nanoseconds([event.ts for event in events])
    return starts, np.zeros(len(events), np.int64) if instants else nanoseconds([event.dur for event in events])


def add_tips(tips: dict[tuple[int, int, int], int], flows: list[Flow]) -> bool:
    """Add to `tips` (device, stream, start_ns) → correlation, from the flows between calls and device work.

    False, with nothing added, if the times must be decoded as decimals.
    """
    found = [flow for flow in flows if flow.ph == "f" and flow.cat in ("ac2g", "async")]
    if not found:
        return True
    try:
        times = nanoseconds([flow.ts for flow in found])
    except InexactError:
        return False
    places = zip(
        integers([flow.pid for flow in found]).tolist(),
        integers([flow.tid for flow in found]).tolist(),
        times.tolist(),
        strict=True,
    )
    tips.update(zip(places, integers([flow.id for flow in found]).tolist(), strict=True))
    return True

"""Which fields of a Kineto trace's events are used, and to which group does each event belong?

A batch is decoded typed where it can be: each category has a type of its own with the fields that are used of it, and
whole columns are converted without a look at their values. Where one value is of another type than writers give it,
the batch is decoded once more with any values, one by one. Both give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import msgspec
import numpy as np

from perfdoctor.model.columns import UNKNOWN
from perfdoctor.patterns import regex
from perfdoctor.readers.kineto import columns
from perfdoctor.readers.kineto.columns import GroupPart, GrowingColumns, InexactError, integer, integers, written
from perfdoctor.vocabulary.names.nccl import COLLECTIVE, RECEIVED_FROM, SENT_TO

if TYPE_CHECKING:
    from perfdoctor.model.columns import Ints

_NOTHING = msgspec.Raw()


def _named(key: str, default: Any = None) -> Any:
    return msgspec.field(default=default, name=key)


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that are used. Typed `Any`: writers differ, and one odd value must not lose a batch."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    awaited_stream: Any = _named("wait_on_stream")
    grid: msgspec.Raw = _NOTHING
    block: msgspec.Raw = _NOTHING
    shared_memory: Any = _named("shared memory")
    bytes: Any = None
    kind: Any = None
    name: Any = None
    labels: Any = None
    dtype: Any = None
    identity: Any = _named("External id")
    shapes: msgspec.Raw = _named("Input Dims", _NOTHING)
    types: msgspec.Raw = _named("Input type", _NOTHING)
    values: msgspec.Raw = _named("Concrete Inputs", _NOTHING)
    sequence: Any = _named("Sequence number")
    forward_thread: Any = _named("Fwd thread id")
    collective: Any = _named("Collective name")
    elements_in: Any = _named("In msg nelems")
    elements_out: Any = _named("Out msg nelems")
    group: Any = _named("Process Group Name")
    group_description: Any = _named("Process Group Description")
    group_size: Any = _named("Group size")
    members: Any = _named("Process Group Ranks")
    sent_to: Any = _named("Dst Rank")
    received_from: Any = _named("Src Rank")
    allocated: Any = _named("Total Allocated")
    reserved: Any = _named("Total Reserved")
    device_type: Any = _named("Device Type")
    device_id: Any = _named("Device Id")


#: The op that PyTorch writes around each of its collectives (c10d, ParamCommsUtils.hpp).
_COMMUNICATES = "record_param_comms"
#: What PyTorch writes where nobody described a group (torch/distributed/distributed_c10d.py).
_NO_DESCRIPTIONS = ("default_pg", "undefined")
_ARGS = {each.name: each for each in msgspec.structs.fields(Args)}
#: The arguments that writers give as whole numbers, each with what it counts as where it is missing.
_WHOLE_ARGS: Mapping[str, int | None] = {
    **dict.fromkeys(("correlation", "awaited_stream", "shared_memory", "bytes", "identity", "sequence"), UNKNOWN),
    **dict.fromkeys(("elements_in", "elements_out", "group_size", "allocated", "device_type", "device_id"), UNKNOWN),
    "device": None, "stream": None, "forward_thread": 0, "reserved": 0,
}  # fmt: skip


def _typed_args(*names: str) -> type[msgspec.Struct]:
    """These of the arguments, with the types that writers give them."""
    fields: list[tuple[str, Any, Any]] = []
    for name in names:
        known = _ARGS[name]
        default = _WHOLE_ARGS.get(name, known.default)
        kind = known.type if name not in _WHOLE_ARGS else int if default is not None else int | None
        fields.append((name, kind, _named(known.encode_name, default)))
    return msgspec.defstruct("TypedArgs", fields, gc=False, frozen=True)


_OF_DEVICE = ("correlation", "device", "stream")
_OF_MESSAGE = (
    "dtype", "elements_in", "elements_out", "group", "group_description", "group_size", "members", "sent_to",
    "received_from",
)  # fmt: skip
_KERNEL_ARGS = _typed_args(*_OF_DEVICE, "grid", "block", "shared_memory", "collective", *_OF_MESSAGE)
_NO_ARGS = Args()
#: What torch.profiler calls the rows of the synchronizations in which a stream waits; others are calls as well.
_STREAM_WAIT = "Stream Wait Event"
#: A change of memory. Of a GPU's it carries the allocator's totals; that of the host has no reserved bytes.
_TOTALS = "[memory]"
#: c10::DeviceType::CUDA, which ROCm's builds use too.
_GPU = 1
#: So many batches are joined to one piece of each column, which then takes less memory.
_PACKED_TOGETHER = 16
_ANNOTATION = "user_annotation"


class Event(msgspec.Struct, gc=False):
    """One event. Complete events (`ph` X) are recognised by their `dur`, metadata (`ph` M) by having no `cat`."""

    cat: str = ""
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Args | None = None

    @property
    def is_annotation(self) -> int:
        return self.cat == _ANNOTATION


class ExactEvent(Event, gc=False):
    """The same event with its times as they are written."""

    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING


class Flow(msgspec.Struct, gc=False):
    """One end of a flow (an arrow in the viewer); its `id` is the correlation of the work that it points at."""

    ph: str = ""
    cat: str = ""
    id: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None


class ExactFlow(Flow, gc=False):
    """The same with its time as it is written."""

    ts: msgspec.Raw = _NOTHING


Events = Sequence[Any]  # Event, or what its category has been decoded to
Numbers = dict[str, "Ints"]
Texts = dict[str, Iterable[str | bytes]]
Convert = Callable[[list[Any]], "Ints"]


class _Kind(NamedTuple):
    """What the rows of a group hold beside times and names.

    `place`: the columns that say where a row is; `numbers`: further columns of numbers, each from an argument. `args`:
    the arguments that its events are decoded with.
    """

    place: Callable[[Events, Events, Convert], Numbers]
    numbers: Mapping[str, str] = {}
    texts: Callable[[Events, Events], Texts] | None = None
    args: type[msgspec.Struct | msgspec.Raw] | None = None


def _device_rows(events: Events, args: Events, convert: Convert) -> Numbers:
    pairs = list(zip(events, args, strict=True))
    return {
        "correlation": convert([arg.correlation for arg in args]),
        "device": convert([event.pid if arg.device is None else arg.device for event, arg in pairs]),
        "stream": convert([event.tid if arg.stream is None else arg.stream for event, arg in pairs]),
    }


def _host_rows(events: Events, _: Events, convert: Convert) -> Numbers:
    return {"process": convert([event.pid for event in events]), "thread": convert([event.tid for event in events])}


def _launch_size(_: Events, args: Events) -> Texts:
    return {"grid": map(bytes, [arg.grid for arg in args]), "block": map(bytes, [arg.block for arg in args])}


def _copy_kind(_: Events, args: Events) -> Texts:
    return {"kind": (str(arg.kind or "") for arg in args)}


def _collective_rows(events: Events, args: Events, convert: Convert) -> Numbers:
    size = convert([arg.group_size for arg in args])
    ranks = map(_ranks, args)
    listed = np.fromiter((each.count(",") + 1 if each else UNKNOWN for each in ranks), np.int64, len(args))
    return {**_device_rows(events, args, convert), "group_size": np.where(size == UNKNOWN, listed, size)}


def _collective_texts(events: Events, args: Events) -> Texts:
    return {
        **_launch_size(events, args),
        "collective": (str(arg.collective or "") for arg in args),
        "data_type": (str(arg.dtype or "") for arg in args),
        "group_name": map(_group, args),
        "peers": map(_peer, args),
    }


def _group(args: Any) -> str:
    """Different groups may share a name ("mesh_tp"), so their members belong to the name."""
    name = _group_name(str(args.group or ""), str(args.group_description or ""))
    return f"{name} {_ranks(args)}".strip()


def _peer(args: Any) -> str:
    """The rank that a message goes to, `>1`, or comes from, `<0`; "" of anything else."""
    for sign, rank in (SENT_TO, args.sent_to), (RECEIVED_FROM, args.received_from):
        if rank is not None and str(rank).isdecimal():
            return f"{sign}{rank}"
    return ""


def _message(args: Any) -> str:
    """A send or receive as its op describes it: peer, elements, type, size and name of its group; "" of other ops."""
    peer = _peer(args)
    if not peer:
        return ""
    elements = max(integer(args.elements_in), integer(args.elements_out))
    return "\t".join((peer, str(elements), str(args.dtype or ""), str(integer(args.group_size)), _group(args)))


@lru_cache(maxsize=4096)
def _group_name(name: str, description: str) -> str:
    """The number or name of a group, and what its maker called it: `3 mesh_tp`."""
    says_more = description not in ("", name, *_NO_DESCRIPTIONS) or not name
    return f"{name} {description}".strip() if says_more else name


def _ranks(args: Any) -> str:
    return _members(str(args.members)) if args.members else ""


@lru_cache(maxsize=4096)
def _members(ranks: str) -> str:
    """The ranks of a group, ascending; "" where the list is not whole: long ones are cut ("[0, 1, ..., 63]")."""
    try:
        whole = msgspec.json.decode(ranks, type=list[int])
    except msgspec.MsgspecError:
        return ""
    return str(sorted(set(whole))) if whole else ""


def _op_rows(events: Events, args: Events, convert: Convert) -> Numbers:
    is_annotation = np.fromiter([event.is_annotation for event in events], np.int64, len(events))
    return {**_host_rows(events, args, convert), "is_annotation": is_annotation}


def _op_texts(events: Events, args: Events) -> Texts:
    pairs = zip(events, args, strict=True)
    return {
        "input_shapes": map(bytes, [arg.shapes for arg in args]),
        "input_types": map(bytes, [arg.types for arg in args]),
        "input_values": [bytes(arg.values) if _SETTINGS[event.name] else b"" for event, arg in pairs],
        "message": [
            _message(arg) if event.name == _COMMUNICATES else "" for event, arg in zip(events, args, strict=True)
        ],
    }


class _HasSettings(dict[str, bool]):
    """By name of an op: does its FLOP depend on inputs that are no tensors? Those of others are not kept."""

    def __missing__(self, op: str) -> bool:
        answer = "convolution" in op or "attention" in op or "attn" in op
        if len(self) < 65_536:
            self[op] = answer
        return answer


_SETTINGS = _HasSettings()


def _counter_texts(_: Events, args: Events) -> Texts:
    """All arguments as they are written: counters are named as their writer likes. "" where a batch was odd."""
    return {"values": [bytes(each) if isinstance(each, msgspec.Raw) else b"" for each in args]}


_KINDS: Mapping[str, _Kind] = {
    "kernels": _Kind(_device_rows, {"shared_memory_bytes": "shared_memory"}, _launch_size, _KERNEL_ARGS),
    "collectives": _Kind(
        _collective_rows, {name: name for name in ("elements_in", "elements_out")}, _collective_texts, _KERNEL_ARGS
    ),
    "copies": _Kind(_device_rows, {"bytes": "bytes"}, _copy_kind, _typed_args(*_OF_DEVICE, "bytes", "kind")),
    "calls": _Kind(_host_rows, {"correlation": "correlation"}, None, _typed_args("correlation")),
    "ops": _Kind(
        _op_rows, {name: name for name in ("identity", "sequence", "forward_thread")}, _op_texts,
        _typed_args("identity", "shapes", "types", "values", "sequence", "forward_thread", *_OF_MESSAGE),
    ),
    "functions": _Kind(_host_rows),
    "overheads": _Kind(_host_rows),
    "counters": _Kind(_host_rows, {}, _counter_texts, msgspec.Raw),
    "totals": _Kind(
        _host_rows, {"device": "device_id", "allocated_bytes": "allocated", "reserved_bytes": "reserved"}, None,
        _typed_args("allocated", "reserved", "device_type", "device_id"),
    ),
    "stream_waits": _Kind(
        _device_rows, {"awaited_stream": "awaited_stream"}, None, _typed_args(*_OF_DEVICE, "awaited_stream")
    ),
}  # fmt: skip

_CATEGORIES = {
    "kernel": "kernels", "concurrent_kernel": "kernels", "mtia_ccp_events": "kernels",
    "memcpy": "copies", "gpu_memcpy": "copies", "memset": "copies", "gpu_memset": "copies",
    "runtime": "calls", "cuda_runtime": "calls", "cuda_driver": "calls",
    "operator": "ops", "cpu_op": "ops", _ANNOTATION: "ops",
    "python_function": "functions", "overhead": "overheads", "cpu_instant_event": "totals", "": "metadata",
    "cuda_sync": "stream_waits", "gpu_pm_counter": "counters",
}  # fmt: skip
#: The process of ops in what `torch.autograd.profiler` exports without Kineto (torch/autograd/profiler_util.py), which
#: writes no category.
_OPS_BEFORE_KINETO = "CPU functions"
#: What Kineto writes (libkineto/src/ActivityType.cpp, and flows). A batch with any other is not decoded typed.
_WRITTEN = (
    "cpu_op", _ANNOTATION, "kernel", "cuda_runtime", "cuda_driver", "python_function", "gpu_memcpy", "gpu_memset",
    "cpu_instant_event", "overhead", "cuda_sync", "ac2g", "fwdbwd", "gpu_user_annotation", "Trace", "async_cpu_to_gpu",
    "async_gpu", "collective_comm", "concurrent_kernel", "cuda_event", "cuda_profiler_range", "external_correlation",
    "glow_runtime", "gpu_pm_counter", "hpu_op", "mtia_ccp_events", "mtia_insight", "mtia_runtime", "mtia_counters",
    "privateuse1_driver", "privateuse1_runtime", "xpu_driver", "xpu_runtime", "xpu_sync",
)  # fmt: skip


def _group_of(category: str) -> str:
    """The group of a category; "" if nothing of it is used. Writers differ: `Kernel`, `xpu_runtime`."""
    return _CATEGORIES.get(category.lower(), "calls" if category.endswith(("_runtime", "_driver")) else "")


class _Times(NamedTuple):
    """A way in which a file may write its times: the types of `ts` and `dur`, and what makes them ns."""

    start: Any
    duration: Any
    starts: Convert
    durations: Convert


def _whole(values: list[Any]) -> Ints:
    return columns.of_whole(written(values))


def _floats(values: list[Any]) -> Ints:
    return columns.of_floats(np.fromiter(values, np.float64, len(values)))


_WAYS = (
    _Times(int, int, _whole, _whole),
    _Times(float, float, _floats, _floats),
    _Times(msgspec.Raw, float, columns.of_digits, _floats),
)
_ANY = _Times(Any, Any, columns.nanoseconds, columns.nanoseconds)


@cache
def _typed(way: _Times) -> tuple[msgspec.json.Decoder[list[Any]], dict[type, str]]:
    """A decoder that has a type for each category, and the group of each type."""
    types = {_typed_event(way, category): _group_of(category) for category in _WRITTEN}
    return msgspec.json.Decoder(list[Union[tuple(types)]]), types  # type: ignore[misc] # noqa: UP007 made at run time


def _typed_event(way: _Times, category: str) -> type[msgspec.Struct]:
    group = _group_of(category)
    fields: list[Any] = []
    if group:
        args = _KINDS[group].args
        fields = [("pid", int), ("tid", int), ("ts", way.start)]
        fields += [] if group == "totals" else [("dur", way.duration)]
        fields += [("name", str, ""), *([("args", args, args())] if args else [])]
    namespace = {"is_annotation": int(category == _ANNOTATION)}
    return msgspec.defstruct("Typed", fields, tag_field="cat", tag=category, gc=False, namespace=namespace)


#: In the error of an event whose times are written in another way.
_OF_TIMES = regex(r"\.(?:ts|dur)`$")


class TracePart(msgspec.Struct, array_like=True):
    """What was read of a piece of a trace: from the event at `start` to the one that ends before `stop`.

    Where `is_sound` is False it cannot be read by itself: the array ends in it, or one event is too long.
    """

    is_sound: bool = False
    start: int = 0
    stop: int = 0
    count: int = 0
    repaired: int = 0
    skipped: int = 0
    groups: dict[str, GroupPart] = {}
    thread_names: list[tuple[int, int, str]] = []
    host_labels: list[int] = []


#: By group and column, by the numbers that texts have in another process, the ones that they have here.
Known = dict[str, dict[str, columns.Numbers]]


class Columns:
    """All groups of one trace, and the names that its metadata events give to processes and threads.

    `event` is what events are decoded to, `exact` the same with times as they are written.
    """

    event = Event
    exact = ExactEvent

    def __init__(self) -> None:
        self.groups: Mapping[str, GrowingColumns] = {name: GrowingColumns() for name in _KINDS}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.host_labels: set[int] = set()
        self._is_collective: dict[str, bool] = {}
        self._ways = list(_WAYS)
        self._batches = 0

    def add_typed(self, text: bytes | memoryview) -> int | None:
        """Decode a list of events and add its rows. None, with nothing added, if it is not what writers write."""
        for way in tuple(self._ways):
            try:
                return self._add_in(way, text)
            except InexactError:  # noqa: PERF203 rare: the times are written in another way
                continue
            except msgspec.ValidationError as error:
                if not _OF_TIMES.search(str(error)):
                    return None
            except (ValueError, OverflowError, RecursionError):
                return None
        return None

    def _add_in(self, way: _Times, text: bytes | memoryview) -> int:
        """Add the events of a text that writes its times this way, and return how many there are."""
        decoder, types = _typed(way)
        events = decoder.decode(text)
        of_groups: dict[str, list[Any]] = {name: [] for name in (*_KINDS, "")}
        append = {kind: of_groups[group].append for kind, group in types.items()}
        for event in events:
            append[type(event)](event)
        self._put(of_groups, way, written)
        if self._ways[0] is not way:
            self._ways.remove(way)
            self._ways.insert(0, way)  # the whole file writes its times so
        return len(events)

    def add(self, events: list[Event]) -> bool:
        """Sort a batch into its groups. False, with nothing added, if its times must be decoded as they are written."""
        of_groups: dict[str, list[Any]] = {name: [] for name in (*_KINDS, "metadata", "")}
        append = _Puts(of_groups)
        for event in events:
            append[event.cat or ("cpu_op" if event.pid == _OPS_BEFORE_KINETO and event.dur is not None else "")](event)
        metadata = of_groups.pop("metadata")
        try:
            self._put(of_groups, _ANY, integers)
        except InexactError:
            return False
        for event in metadata:
            if event.args is None:
                continue
            if event.name == "thread_name" and isinstance(event.args.name, str):
                self.thread_names[integer(event.pid), integer(event.tid)] = event.args.name
            elif event.name == "process_labels" and event.args.labels == "CPU":
                self.host_labels.add(integer(event.pid))
        return True

    def _put(self, of_groups: dict[str, list[Any]], way: _Times, convert: Convert) -> None:
        """Add the rows of all groups, or raise before anything is added. `convert`: what makes numbers of arguments."""
        of_groups["kernels"], of_groups["collectives"] = self._split_kernels(of_groups["kernels"])
        of_groups["totals"] = [
            each
            for each in of_groups["totals"]
            if each.name == _TOTALS and (args := each.args) and args.device_type == _GPU and args.reserved
        ]
        of_groups["stream_waits"] = [each for each in of_groups["stream_waits"] if each.name == _STREAM_WAIT]
        filled = [(name, kind, rows) for name, kind in _KINDS.items() if (rows := of_groups[name])]
        found = []
        for name, kind, events in filled:
            args = [event.args or _NO_ARGS for event in events] if kind.args else []
            starts = way.starts([event.ts for event in events])
            is_instant = name == "totals"
            lengths = np.zeros_like(starts) if is_instant else way.durations([event.dur for event in events])
            numbers = {"start_ns": starts, "duration_ns": lengths, **kind.place(events, args, convert)}
            numbers |= {name: convert(list(map(attrgetter(field), args))) for name, field in kind.numbers.items()}
            found.append((self.groups[name], kind, events, args, numbers))
        for group, kind, events, args, numbers in found:
            texts = kind.texts(events, args) if kind.texts else {}
            group.add(numbers, {"name": [event.name for event in events], **texts}, len(events))
        self._batches += 1
        if self._batches % _PACKED_TOGETHER == 0:
            for group in self.groups.values():
                group.pack()

    def take(self) -> TracePart:
        """What was added since the last time, for another's `join`."""
        groups = {name: rows.take() for name, rows in self.groups.items() if len(rows)}
        names = [(*place, name) for place, name in self.thread_names.items()]
        part = TracePart(groups=groups, thread_names=names, host_labels=sorted(self.host_labels))
        self.thread_names, self.host_labels = {}, set()
        return part

    def join(self, part: TracePart, known: Known) -> None:
        """Add what another has read; `known`: what is known of its numbers of texts."""
        for name, rows in part.groups.items():
            self.groups[name].join(rows, known.setdefault(name, {}))
        self.thread_names |= {(process, thread): name for process, thread, name in part.thread_names}
        self.host_labels |= set(part.host_labels)

    def _split_kernels(self, kernels: list[Any]) -> tuple[list[Any], list[Any]]:
        """The kernels that are not collectives, and those that are."""
        known = self._is_collective
        others: list[Any] = []
        collectives: list[Any] = []
        for event in kernels:
            name = event.name
            if name not in known:
                known[name] = COLLECTIVE.search(name) is not None
            (collectives if known[name] else others).append(event)
        return others, collectives


class _Puts(dict[str, Callable[[Event], None]]):
    """Category → what takes its events; those of "" are dropped."""

    def __init__(self, groups: Mapping[str, list[Any]]) -> None:
        super().__init__()
        self._groups = groups

    def __missing__(self, category: str) -> Callable[[Event], None]:
        self[category] = put = self._groups[_group_of(category)].append
        return put


class Tips:
    """By (device, stream, start_ns) of device work its correlation, from the flows between calls and device work."""

    event = Flow
    exact = ExactFlow

    def __init__(self) -> None:
        self.correlations: dict[tuple[int, int, int], int] = {}

    def add_typed(self, _: bytes | memoryview) -> int | None:
        return None

    def add(self, flows: list[Flow]) -> bool:
        """False, with nothing added, if the times must be decoded as they are written."""
        found = [flow for flow in flows if flow.ph == "f" and flow.cat in ("ac2g", "async")]
        if not found:
            return True
        try:
            times = columns.nanoseconds([flow.ts for flow in found])
        except InexactError:
            return False
        devices, streams, ids = (integers(list(map(attrgetter(name), found))) for name in ("pid", "tid", "id"))
        places = zip(devices.tolist(), streams.tolist(), times.tolist(), strict=True)
        self.correlations.update(zip(places, ids.tolist(), strict=True))
        return True

"""How is a trace of torch.profiler edited so that what is wrong with its training is known, and by how much?

A trace is a list of events with times in ns. What is planted on the host moves all of the host that follows; the device's
work is placed anew, so that a pause costs what the queue did not hide, and a wait for the device lasts as long as it has to.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from recorded_otherwise import read_trace

Event = dict[str, Any]
US, MS = 1_000, 1_000_000
_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_CALLS = {"cuda_runtime", "cuda_driver"}
#: The categories of the first years of Kineto (libkineto/src/ActivityType.cpp of 2021) as they are called today.
TODAY = {
    "Operator": "cpu_op", "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime",
}  # fmt: skip
_FLOWS = ("s", "t", "f")
#: Planted work is numbered from here, and repeated work by as much a repetition.
_FIRST_NUMBER = 1_000_000_000
#: Between the planted launches of one op, and of a launch itself.
_LAUNCH_NS = 4 * US
#: Work of one stream is so far apart where nothing keeps it, and what waits for other work starts so soon behind it.
_GAP_NS = 5 * US
_SEEN_TO_WAIT_NS = 100 * US
#: From a launch to its work, where nothing is queued.
_LONGEST_LATENCY_NS = 10 * US
_MAY_WAIT = "Synchronize|Memcpy"


@dataclass
class Trace:
    """The events of a trace, with `ts` and `dur` in ns since `base_ns`, and the members beside them."""

    rows: list[Event]
    header: dict[str, Any]
    base_ns: int
    #: Of the next planted launch.
    number: int = _FIRST_NUMBER
    #: How it is written: whole microseconds since 1970, as the first years did, or ns behind the point since the base.
    is_old: bool = False

    @classmethod
    def of(cls, path: Path) -> Trace:
        document = read_trace(path)
        header = {name: value for name, value in document.items() if name != "traceEvents"}
        rows = [row for row in document["traceEvents"] if row.get("ph") not in _FLOWS]
        rows = [row for row in rows if row.get("cat") not in ("gpu_user_annotation", "Trace")]
        begin = int(min(row["ts"] for row in rows if row.get("ph") == "X"))
        for row in rows:
            row["ts"] = round((row.get("ts", begin) - begin) * US)
            row["cat"] = TODAY.get(row.get("cat", ""), row.get("cat", ""))
            if "dur" in row:
                row["dur"] = round(row["dur"] * US)
        return cls(rows, header, header.get("baseTimeNanoseconds", 0) + begin * US)

    def of_category(self, *categories: str) -> list[Event]:
        return [row for row in self.rows if row.get("cat") in categories and "dur" in row]

    @property
    def device(self) -> list[Event]:
        return sorted(self.of_category(*_DEVICE), key=lambda row: row["ts"])

    def marks(self, pattern: str) -> list[Event]:
        """The host's rows of these names, by start; of rows in each other the outer ones."""
        found = [row for row in self.rows if row.get("cat") not in _DEVICE and "dur" in row]
        rows = sorted(
            (row for row in found if re.search(pattern, row["name"])), key=lambda row: (row["ts"], -row["dur"])
        )
        kept: list[Event] = []
        for row in rows:
            if not kept or row["ts"] >= end_of(kept[-1]):
                kept.append(row)
        return kept

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def text(self) -> bytes:
        """The file, of which the events stand in the order of time."""
        rows = sorted(self.rows, key=lambda row: row["ts"])
        header = {key: value for key, value in self.header.items() if key != "baseTimeNanoseconds"}
        if self.is_old:
            written = [_in_whole_us(row, self.base_ns) for row in rows]
        else:
            header["baseTimeNanoseconds"] = self.base_ns
            written = [{**row, **{key: row[key] / US for key in ("ts", "dur") if key in row}} for row in rows]
        return msgspec.json.encode({**header, "traceEvents": [_bare(row) for row in written]})


def end_of(row: Event) -> int:
    return int(row["ts"] + row["dur"])


def _in_whole_us(row: Event, base_ns: int) -> Event:
    begin = (base_ns + row["ts"]) // US
    return {**row, "ts": begin, **({"dur": (base_ns + end_of(row)) // US - begin} if "dur" in row else {})}


def _bare(row: Event) -> Event:
    return {key: value for key, value in row.items() if key != "cat" or value}


# --- what moves when something is put in -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """What happens at each of some moments, one after the other on the thread that is in the row `at`.

    `where`: at its start or end; `every`: at each such row of so many. `op` launches `kernels`, each a name and its
    microseconds. `copy`: a copy's name, microseconds and bytes; `blocks`: the host waits for its end. `waits`: the host
    stands in a call until the device has done all that was launched, as `.item()` does. `host_ms`: the host does
    something of this `name` and `category` and launches nothing.
    """

    at: str
    where: str = "start"
    every: int = 1
    op: str = ""
    kernels: Sequence[tuple[str, float]] = ()
    copy: tuple[str, float, int] | None = None
    blocks: bool = False
    waits: bool = False
    host_ms: float = 0.0
    name: str = ""
    category: str = "user_annotation"


@dataclass
class _Calls:
    """How this trace's runtime calls its calls, and what its kernels look like."""

    launch: str
    copy: str
    wait: str
    template: Event

    @classmethod
    def of(cls, trace: Trace) -> _Calls:
        names = Counter(row["name"] for row in trace.of_category(*_CALLS))
        launch = next(name for name, _ in names.most_common() if "Launch" in name)
        prefix = "hip" if launch.startswith("hip") else "cuda"
        kernel = next(row for row in trace.device if row["cat"] == "kernel")
        return cls(launch, f"{prefix}MemcpyAsync", f"{prefix}StreamSynchronize", kernel)


@dataclass
class _Work:
    """Work of the device: its row, when it was launched, and when it ended before the edit (`end`) and does now."""

    row: Event
    launched: int
    end: int
    is_placed: bool = False


class _Replay:
    """Goes through a recording once, in the order of time, and places all of the device's work anew.

    Work starts when it has been launched, what precedes it in its stream has ended, and so has what it seems to wait
    for: work of another stream that ended right before it did start, while its own stream was empty. A call that
    waited for the device waits for the same work again.
    """

    def __init__(self, trace: Trace, planted: Planted | None = None) -> None:
        self.trace, self.planted, self.calls = trace, planted, _Calls.of(trace)
        anchors = trace.marks(planted.at)[:: planted.every] if planted else []
        where = planted.where if planted else ""
        self.moments = [(row["ts"] + 1 if where == "start" else end_of(row), row) for row in anchors]
        #: From these moments on the host is so much later.
        self.breaks, self.offsets = [-(2**62)], [0]
        self.new: list[Event] = []
        self.done = 0
        self.last_of_stream: dict[Any, tuple[int, int]] = {}  # the end of its last work, before the edit and now
        self.placed: list[tuple[int, int, int]] = []  # of all work: launched, ended before the edit, ends now

    def run(self) -> None:
        calls = [row for row in self.trace.of_category(*_CALLS) if "args" in row]
        launched = {row["args"].get("correlation"): row["ts"] for row in calls}
        self.work = [
            _Work(row, launched.get(row["args"].get("correlation"), row["ts"]), end_of(row))
            for row in self.trace.device
        ]
        latencies = sorted(each.row["ts"] - each.launched for each in self.work if each.row["ts"] > each.launched)
        self.latency = min([_LONGEST_LATENCY_NS, *latencies[len(latencies) // 20 :][:1]])
        waits = [
            row for row in self.trace.of_category(*_CALLS) if re.search(_MAY_WAIT, row["name"]) and row["dur"] > 5 * US
        ]
        # In the order of time: work at its start, a wait at its end, a moment of planting.
        todo: list[tuple[int, int, Any]] = [(each.row["ts"], 0, each) for each in self.work]
        todo += [(end_of(row), 1, row) for row in waits]
        todo += [(moment, 2, row) for moment, row in self.moments]
        for moment, kind, what in sorted(todo, key=lambda each: each[:2]):
            (self._place, self._wait, self._plant)[kind](what, moment)
        device = {id(each.row) for each in self.work}
        self._move_host(device)
        self.trace.rows += self.new

    def now(self, moment: int) -> int:
        """A moment of the host after the edit."""
        return moment + self.offsets[bisect_right(self.breaks, moment) - 1]

    def _shift(self, moment: int, later: int) -> None:
        at = bisect_right(self.breaks, moment)
        self.breaks.insert(at, moment)
        self.offsets.insert(at, later)

    def _place(self, work: _Work, _: int) -> None:
        if work.is_placed:
            return
        row, stream = work.row, (work.row["pid"], work.row["tid"])
        before, now = self.last_of_stream.get(stream, (-(2**62), -(2**62)))
        start = max(
            self.now(work.launched) + min(row["ts"] - work.launched, self.latency),
            now + min(row["ts"] - before, _GAP_NS),
        )
        if row["ts"] - before > _GAP_NS:
            others = [ends for other, ends in self.last_of_stream.items() if other != stream and ends[0] <= row["ts"]]
            ended, ends_now = max(others, default=(-(2**62), 0))
            if row["ts"] - ended < _SEEN_TO_WAIT_NS:
                start = max(start, ends_now + row["ts"] - ended)
        row["ts"], work.is_placed = start, True
        self.last_of_stream[stream] = (work.end, end_of(row))
        self.placed.append((work.launched, work.end, end_of(row)))
        self.done = max(self.done, end_of(row))

    def _wait(self, call: Event, end: int) -> None:
        ends = [
            (ended, now) for launched, ended, now in reversed(self.placed) if launched <= call["ts"] and ended <= end
        ]
        ended, now = max(ends, default=(0, 0))
        if ended >= call["ts"] and end - ended < _SEEN_TO_WAIT_NS:
            self._shift(end - 1, max(now, self.now(call["ts"])) + end - ended - end)

    def _plant(self, anchor: Event, moment: int) -> None:
        planted = self.planted
        assert planted is not None
        for each in self.work:
            if each.launched < moment:
                self._place(each, moment)
        clock = begin = self.now(moment)
        place = {"pid": anchor["pid"], "tid": anchor["tid"]}
        for name, us in planted.kernels:
            self._work({"cat": "kernel", "name": name}, self.calls.launch, clock, us, place, {})
            clock += 2 * _LAUNCH_NS
        if planted.op:
            self.new.append(
                {"ph": "X", "cat": "cpu_op", "name": planted.op, "ts": begin, "dur": clock - begin, **place}
            )
        if planted.copy:
            name, us, size = planted.copy
            call = self._work({"cat": "gpu_memcpy", "name": name}, self.calls.copy, clock, us, place, {"bytes": size})
            call["dur"] = max(self.done - clock, _LAUNCH_NS) if planted.blocks else _LAUNCH_NS
            clock += call["dur"] + _LAUNCH_NS
        if planted.waits:
            end = max(self.done, clock) + 10 * US
            for name, category in (
                (self.calls.wait, "cuda_runtime"),
                ("aten::_local_scalar_dense", "cpu_op"),
                ("aten::item", "cpu_op"),
            ):
                self.new.append({"ph": "X", "cat": category, "name": name, "ts": clock, "dur": end - clock, **place})
            clock = end
        if planted.host_ms:
            length = round(planted.host_ms * MS)
            row = {"ph": "X", "cat": planted.category, "name": planted.name, "ts": clock, "dur": length, **place}
            self.new += [row] if planted.name else []
            clock += length
        self._shift(moment, clock - moment)

    def _work(self, row: Event, call: str, clock: int, us: float, place: Event, more: Mapping[str, Any]) -> Event:
        template, number, length = self.calls.template, self.trace.next_number(), round(us * US)
        stream = (template["pid"], template["tid"])
        before, free = self.last_of_stream.get(stream, (0, 0))
        start = max(free + US, clock + self.latency)
        args = {**template["args"], **more, "correlation": number}
        self.new.append({**template, **row, "ts": start, "dur": length, "args": args})
        self.last_of_stream[stream] = (before, start + length)
        self.done = max(self.done, start + length)
        launch = {"ph": "X", "cat": "cuda_runtime", "name": call, "ts": clock, "dur": _LAUNCH_NS, **place}
        launch["args"] = {"correlation": number}
        self.new.append(launch)
        return launch

    def _move_host(self, device: set[int]) -> None:
        for row in self.trace.rows:
            if id(row) in device:
                continue
            begin = row["ts"]
            row["ts"] = self.now(begin)
            if "dur" in row:
                end = begin + row["dur"]
                row["dur"] = max(end + self.offsets[bisect_left(self.breaks, end) - 1] - row["ts"], 0)


def plant(trace: Trace, **what: Any) -> None:
    """Put something into the recording at some moments: see `Planted`."""
    _Replay(trace, Planted(**what)).run()


# --- other shapes of the same ----------------------------------------------------------------------------------------


def repeat(trace: Trace, mark: str, times: int, gap_us: float = 20.0) -> None:
    """What the first row of this name holds, and the device's work that it launched, so many times; nothing else."""
    step = trace.marks(mark)[0]
    begin, end = step["ts"], end_of(step)
    inside = [row for row in trace.rows if row.get("cat") not in _DEVICE and "dur" in row and begin <= row["ts"] < end]
    inside = [{**row, "dur": min(row["dur"], end - row["ts"])} for row in inside]
    numbers = {row["args"]["correlation"] for row in inside if row.get("cat") in _CALLS and "args" in row}
    work = [row for row in trace.device if row["args"]["correlation"] in numbers]
    last = max(end_of(row) for row in [*work, step])
    about = [row for row in trace.rows if row.get("ph") == "M"]
    rows = []
    for number in range(times):
        later = number * (last - begin + round(gap_us * US))
        rows += [_again(row, later, number, is_step=row["name"] == step["name"]) for row in (*inside, *work)]
    trace.rows = [*about, *rows]
    _Replay(trace).run()  # what was launched before is gone, and nothing waits for it


def _again(row: Event, later: int, number: int, *, is_step: bool) -> Event:
    again = {**row, "ts": row["ts"] + later}
    if "correlation" in row.get("args", {}):
        again["args"] = {**row["args"], "correlation": row["args"]["correlation"] + number * 1_000_000}
    if is_step:
        again["name"] = re.sub(r"#(\d+)$", lambda found: f"#{int(found[1]) + number}", row["name"])
    return again


def in_graphs(trace: Trace, mark: str, call: str, wait: str) -> None:
    """Each row of this name launches its device work as one graph and waits for it: the ops are gone, and the gaps."""
    steps = trace.marks(mark)
    kept = [row for row in trace.rows if row.get("ph") == "M"]
    numbers = {row["args"]["correlation"]: row["ts"] for row in trace.of_category(*_CALLS) if "args" in row}
    clock = 0
    for step in steps:
        work = [row for row in trace.device if step["ts"] <= numbers[row["args"]["correlation"]] < end_of(step)]
        place = {"pid": step["pid"], "tid": step["tid"]}
        number, begin = trace.next_number(), clock
        launch = {"ph": "X", "cat": "cuda_runtime", "name": call, "ts": begin + 5 * US, "dur": 15 * US, **place}
        kept.append({**launch, "args": {"correlation": number}})
        clock = begin + 30 * US
        for row in work:
            kept.append({**row, "ts": clock, "args": {**row["args"], "correlation": number, "graph node id": 7}})
            clock += row["dur"] + US
        kept.append({
            "ph": "X", "cat": "cuda_runtime", "name": wait, "ts": begin + 25 * US, "dur": clock + 5 * US - begin - 25 * US,
            **place, "args": {"correlation": trace.next_number()},
        })  # fmt: skip
        clock += 10 * US
        kept.append({**step, "ts": begin, "dur": clock - begin})
    trace.rows = kept


def rename(trace: Trace, **names: Sequence[tuple[str, str]]) -> None:
    """Names by category, each by a pattern and what stands for it; `call` are those of the runtime and driver."""
    for row in trace.rows:
        category = "call" if row.get("cat") in _CALLS else row.get("cat", "")
        for pattern, name in names.get(category, ()):
            changed = re.sub(pattern, lambda _, name=name: name, row["name"])  # type: ignore[misc]
            if changed != row["name"]:
                row["name"] = changed
                break


def device_named(trace: Trace, name: str, **properties: Any) -> None:
    """The devices that the file lists are of this name."""
    listed = trace.header.get("deviceProperties") or [{"id": 0}]
    trace.header["deviceProperties"] = [{**each, "name": name, **properties} for each in listed]


def without(trace: Trace, categories: Sequence[str], names: str = "") -> None:
    """Without events of these categories, or those of them with such names."""
    trace.rows = [
        row for row in trace.rows if row.get("cat") not in categories or not re.search(names, row.get("name", ""))
    ]


def retyped(trace: Trace, kernels: str, types: Mapping[str, str]) -> None:
    """The ops whose kernels have such names get other types of inputs."""
    known = {row["args"].get("External id") for row in trace.device if re.search(kernels, row["name"])}
    for row in trace.of_category("cpu_op"):
        args = row.get("args", {})
        if args.get("External id") in known and "Input type" in args:
            args["Input type"] = [types.get(each, each) for each in args["Input type"]]


# --- other writers ---------------------------------------------------------------------------------------------------


def in_old_format(trace: Trace) -> None:
    """Write it as Kineto did in its first years: whole microseconds since 1970, categories with capitals, threads as texts."""
    old = {today: then for then, today in TODAY.items()}
    ranges = {"user_annotation": "Operator", "cuda_driver": "Runtime"}
    trace.is_old = True
    trace.base_ns = trace.base_ns if trace.base_ns > 10**18 else 1_623_212_388_000_000_000
    without(trace, ("python_function", "cpu_instant_event", "overhead"))
    for row in trace.rows:
        category = row.get("cat", "")
        row["tid"] = f"stream {row['tid']}" if category in _DEVICE else str(row["tid"])
        row["cat"] = ranges.get(category, old.get(category, category))


def _xpu_row(row: Event) -> Iterator[Event]:
    """libkineto/src/plugin/xpupti/XpuptiActivityHandlers.cpp: what is written of a kernel, copy, call and wait."""
    category = row.get("cat", "")
    args = dict(row.get("args", {}))
    if category in _DEVICE:
        kept = {key: args[key] for key in ("External id", "correlation", "bytes") if key in args}
        kept |= {"device": 0, "context": "0x000000000c3a1f60", "sycl queue": 4, "l0 queue": "0x000000000c3b2e10"}
        yield {**row, "pid": 0, "tid": 4, "args": kept}
    elif category in _CALLS and "Synchronize" in row["name"]:
        wait = {"correlation": args.get("correlation", 0), "Type": "HOST_EVENT", "Number_wait_events": 1}
        yield {**row, "cat": "xpu_runtime", "name": "urEventWait", "args": {"correlation": args.get("correlation", 0)}}
        yield {**row, "cat": "xpu_sync", "name": "zeEventHostSynchronize", "pid": -1, "args": wait}
    elif category in _CALLS:
        if name := next((name for pattern, name in _XPU_CALLS if re.search(pattern, row["name"])), ""):
            yield {**row, "cat": "xpu_runtime", "name": name}
    else:
        yield row


_XPU_CALLS = (
    ("MemcpyAsync|MemcpyWithStream", "urEnqueueUSMMemcpy"), ("MemsetAsync", "urEnqueueUSMFill"),
    ("Launch", "urEnqueueKernelLaunch"), ("Malloc", "urUSMDeviceAlloc"),
)  # fmt: skip
_XPU_KERNELS = (
    (r".*(gemm|nvjet|cutlass|Cijk).*", "gemm_kernel"),
    (r".*vectorized_elementwise_kernel.*|.*elementwise_kernel.*",
     "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::AddFunctor<float>, at::detail::Array<char*, 3> >"),
    (r".*layer_norm.*", "at::native::xpu::VectorizedLayerNormKernelFunctor<float, float>"),
    (r".*(reduce_kernel|softmax).*", "at::native::xpu::DispatchSoftmaxForwardKernelFunctor<8, float, float, float, int>"),
    (r".*multi_tensor_apply.*", "at::native::xpu::MultiTensorApplyKernelFunctor<at::native::xpu::FusedAdamMathFunctor<float, 4> >"),
)  # fmt: skip


def on_xpu(trace: Trace) -> None:
    """Change it to what a GPU of Intel leaves."""
    rename(trace, kernel=_XPU_KERNELS)
    trace.rows = [each for row in trace.rows for each in _xpu_row(row)]
    name = "Intel(R) Data Center GPU Max 1550"
    trace.header["deviceProperties"] = [{"id": 0, "name": name, "totalGlobalMem": 68719476736, "maxComputeUnits": 512}]
    for key in [key for key in trace.header if re.search("cuda|hip|cupti|roctracer", key)]:
        del trace.header[key]


def on_private_device(trace: Trace) -> None:
    """Write it as the plugin of an accelerator out of the tree does (libkineto/src/plugin/aiupti)."""
    for row in trace.rows:
        if row.get("cat") in _CALLS:
            row["cat"] = "privateuse1_runtime"
            wait = "Synchronize" in row["name"]
            row["name"] = (
                "aiuScheduleWait" if wait else "aiuLaunchControlBlocks" if "Launch" in row["name"] else "aiuMalloc"
            )
        elif row.get("cat") == "gpu_memcpy":
            row["name"] = "Memcpy (HtoD)"
    trace.header.pop("deviceProperties", None)


def on_mps(trace: Trace) -> None:
    """Change it to what Apple's GPU leaves: torch.profiler records nothing but the ops of the host."""
    without(trace, (*_DEVICE, *_CALLS))
    trace.header.pop("deviceProperties", None)
    rename(trace, cpu_op=[
        (r"^aten::cudnn_convolution_backward.*", "aten::mps_convolution_backward"),
        (r"^aten::cudnn_convolution.*", "aten::_mps_convolution"), (r"^aten::cudnn_batch_norm", "aten::native_batch_norm"),
    ])  # fmt: skip


def on_windows(trace: Trace) -> None:
    """Paths of Python as Windows has them, and its name of the process."""
    folder = "C:\\Users\\Dr. Müller\\miniconda3\\envs\\train\\Lib\\site-packages\\"
    for row in trace.rows:
        if row.get("cat") == "python_function":
            path, found, rest = row["name"].partition(".py(")
            row["name"] = folder + path.replace("/", "\\") + found + rest if found else row["name"]
        if row.get("name") == "process_name":
            row["args"] = {"name": "python.exe"}


EDITS = {
    "plant": plant, "repeat": repeat, "in_graphs": in_graphs, "rename": rename, "device_named": device_named,
    "without": without, "retyped": retyped, "in_old_format": in_old_format, "on_xpu": on_xpu,
    "on_private_device": on_private_device, "on_mps": on_mps, "on_windows": on_windows,
}  # fmt: skip

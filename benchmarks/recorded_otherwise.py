"""In which ways can the same training be recorded otherwise? Each changes a recording, and nothing of the training.

Those of a Timeline are changed after it was read; those of a trace of torch.profiler are written and read again.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.metrics.accounting.idle_causes import PROOFS
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.columns import UNKNOWN, Ints, Text
from perfdoctor.model.device_work import launching_calls
from perfdoctor.model.place import Place
from perfdoctor.model.run import WHOLE_RECORDING, Selection
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import Frame, Timeline
from perfdoctor.vocabulary.gpu_counters import COUNTERS
from perfdoctor.vocabulary.names import cuda as cuda_names

#: On the device's clock; the others are on the host's.
_DEVICE = ("kernels", "copies", "collectives", "stream_waits")
_HOST = ("calls", "ops", "ranges", "functions", "modules", "os_calls", "overheads")
#: A part of a recording has at least so many steps, one of which is left out at either end.
_FEWEST_STEPS = 5
#: At least this share of the kernels is in half of the steps, where launches and work find each other.
_LEAST_KERNELS = 0.3
#: A device that is idle for less of the time loses nothing by how its work is launched.
_BUSY = 0.03
_TILE = re.compile(r"(?<=_)(\d+)x(\d+)(?=_)")

#: Ranges that torch, its libraries and perfdoctor make by themselves.
_OF_FRAMEWORKS = re.compile(r"#|::|^(nccl|gloo|c10d|Distributed|FSDP|Torch|Compiled|perfdoctor)", re.IGNORECASE)

#: How many steps there are, and which is the first, or the one behind the last, of some of them.
Edge = Callable[[int], int]
Document = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """Another way to record the same training; None where it does not apply to a recording.

    `part`: other steps of it, so a saving may lie anywhere in the range that was stated. `less`: something was not
    recorded, so what it showed may become unknown. `scaled`: times differ, so what is known in ns may cross a limit.
    """

    name: str
    timeline: Callable[[Timeline], Timeline | None] | None = None
    selection: Callable[[Timeline], Selection | None] = lambda _: WHOLE_RECORDING
    trace: Callable[[Document], bytes] | None = None
    part: bool = False
    less: bool = False
    scaled: bool = False
    permutes_ranks: bool = False


# --- clocks ----------------------------------------------------------------------------------------------------------


def _changed(timeline: Timeline, change: Callable[[str, Frame], Frame], signals: Sequence[str] = ()) -> Timeline:
    """The recording with these signals, or all, changed row by row."""
    frames = {
        signal: change(signal, rows).sorted() if len(rows) and (not signals or signal in signals) else rows
        for signal, rows in timeline.frames.items()
    }
    return replace(timeline, frames=frames)


def _at_work(timeline: Timeline) -> bool:
    """Are both clocks in it?"""
    return bool(len(timeline.calls)) and any(len(timeline[signal]) for signal in _DEVICE)


def _device_later(by_ns: int, timeline: Timeline) -> Timeline | None:
    return _changed(timeline, lambda _, rows: rows.shifted(by_ns), _DEVICE) if _at_work(timeline) else None


def _device_drifts(ppm: float, timeline: Timeline) -> Timeline | None:
    if not _at_work(timeline):
        return None
    zero = min(int(timeline[signal].start_ns[0]) for signal in _DEVICE if len(timeline[signal]))

    def later(times: Ints) -> Ints:
        found: Ints = times + np.rint((times - zero) * (ppm * 1e-6)).astype(np.int64)
        return found

    return _changed(
        timeline, lambda _, rows: rows.with_columns(start_ns=later(rows.start_ns), end_ns=later(rows.end_ns)), _DEVICE
    )


def _all_later(by_ns: int, timeline: Timeline) -> Timeline:
    epoch = None if timeline.epoch_ns is None else timeline.epoch_ns - by_ns
    return replace(_changed(timeline, lambda _, rows: rows.shifted(by_ns)), epoch_ns=epoch)


def _another_day(timeline: Timeline) -> Timeline:
    return replace(timeline, epoch_ns=(timeline.epoch_ns or 0) + 86_400_000_000_000)


def _doubled(timeline: Timeline) -> Timeline:
    other = _changed(timeline, lambda _, rows: rows.with_columns(start_ns=rows.start_ns * 2, end_ns=rows.end_ns * 2))
    return replace(other, unrecorded_step_ns={rank: 2 * ns for rank, ns in timeline.unrecorded_step_ns.items()})


# --- order and numbers -----------------------------------------------------------------------------------------------


def _shuffled(timeline: Timeline) -> Timeline:
    """Rows that begin at one moment in another order; the outer of two stays in front of the inner one."""
    generator = np.random.default_rng(7)
    return _changed(
        timeline,
        lambda _, rows: rows.take(np.lexsort((generator.random(len(rows)), -rows.end_ns, rows.start_ns))),
        (*_DEVICE, *_HOST),
    )


def _renumbered(columns: Mapping[str, Callable[[Ints], Ints]], timeline: Timeline) -> Timeline:
    def renumber(_: str, rows: Frame) -> Frame:
        new = {name: change(rows[name]) for name, change in columns.items() if name in rows.columns}
        return rows.with_columns(
            **{name: np.where(rows[name] == UNKNOWN, UNKNOWN, new[name]).astype(np.int64) for name in new}
        )

    return _changed(timeline, renumber)


def _turned(number: Ints) -> Ints:
    """Other numbers, in the opposite order."""
    return 5_000_000 - number % 4_000_000


def _other_threads(timeline: Timeline) -> Timeline:
    names = {
        (int(_turned(np.int64(process))), int(_turned(np.int64(thread)))): name  # type: ignore[arg-type]
        for (process, thread), name in timeline.thread_names.items()
    }
    other = _renumbered(dict.fromkeys(("thread", "process", "training"), _turned), timeline)
    return replace(other, thread_names=names)


def _other_streams(timeline: Timeline) -> Timeline | None:
    if not any(len(timeline[signal]) for signal in _DEVICE):
        return None
    return _renumbered(dict.fromkeys(("stream", "awaited_stream"), lambda stream: 900 - stream % 800), timeline)


def permuted(ranks: Sequence[int]) -> dict[int, int]:
    """The new number of each rank."""
    return dict(zip(ranks, (*ranks[1:], ranks[0]), strict=True))


def _other_ranks(timeline: Timeline) -> Timeline | None:
    if len(timeline.ranks) < 2:
        return None
    new = permuted(timeline.ranks)
    table = np.arange(max(timeline.ranks) + 1)
    table[list(new)] = list(new.values())
    # The GPU of a rank has its number on a node: it is renamed with it.
    columns = ("rank", "device") if all(rank == device for rank, device in timeline.places) else ("rank",)
    other = _renumbered(dict.fromkeys(columns, lambda number: table[number % table.size]), timeline)
    devices = tuple(
        replace(each, **{name: new.get(getattr(each, name), getattr(each, name)) for name in columns})
        for each in timeline.devices
    )
    sources = tuple(replace(each, ranks=tuple(new.get(rank, rank) for rank in each.ranks)) for each in timeline.sources)
    steps = {new.get(rank, rank): ns for rank, ns in timeline.unrecorded_step_ns.items()}
    return replace(other, devices=devices, sources=sources, unrecorded_step_ns=steps)


# --- what was recorded, and of which names -------------------------------------------------------------------------------


def _without(signals: Sequence[str], timeline: Timeline) -> Timeline | None:
    if not any(len(timeline[signal]) for signal in signals):
        return None
    frames = {name: Frame.empty(name) if name in signals else rows for name, rows in timeline.frames.items()}
    return replace(timeline, frames=frames, recorded=timeline.recorded - set(signals))


def _without_shapes(timeline: Timeline) -> Timeline | None:
    if not any(timeline.ops.text("input_shapes").values):
        return None
    empty = Text.constant("", len(timeline.ops))
    ops = timeline.ops.with_columns(input_shapes=empty, input_types=empty, input_values=empty)
    return timeline.with_frame("ops", ops)


def _without_own_ranges(timeline: Timeline) -> Timeline | None:
    """Without the ranges that mark no step and that no framework made: those of the user, as far as names tell."""
    marks = [marks for rank in timeline.ranks if (marks := host_marks(timeline, rank)) is not None]
    ranges = timeline.ranges
    if not marks or not len(ranges):
        return None
    kept = np.isin(ranges.start_ns, np.concatenate([each.starts for each in marks]))
    kept |= np.isin(ranges.end_ns, np.concatenate([each.ends for each in marks]))
    kept |= ranges.name.matches(_OF_FRAMEWORKS)
    for proof in PROOFS:
        for pattern in proof.names:
            kept |= ranges.name.matches(pattern)
    return None if kept.all() else timeline.with_frame("ranges", ranges.take(kept))


def _other_tiles(timeline: Timeline) -> Timeline | None:
    """Matrix products of another tile: `…_128x64_…` becomes `…_64x128_…`, as another cuBLAS calls them."""
    kernels = timeline.kernels
    names = kernels.name.mapped(_with_other_tile)
    changes = len(kernels) and names.values != kernels.name.values
    return timeline.with_frame("kernels", kernels.with_columns(name=names)) if changes else None


def _with_other_tile(name: str) -> str:
    return _TILE.sub(r"\2x\1", name)


# --- the GPU's own counters ----------------------------------------------------------------------------------------------

_COUNTERS = ("gpu_counters", "other_gpu_counters")


def _counters_later(by_ns: int, timeline: Timeline) -> Timeline | None:
    return _changed(timeline, lambda _, rows: rows.shifted(by_ns), _COUNTERS) if len(timeline[_COUNTERS[0]]) else None


def _half_as_often(timeline: Timeline) -> Timeline | None:
    """Each two samples as one, which is their mean."""
    rows = timeline["gpu_counters"]
    if len(rows) < 2:
        return None
    first, second = rows.take(slice(0, len(rows) // 2 * 2, 2)), rows.take(slice(1, len(rows) // 2 * 2, 2))
    means = {name: (first.floats(name) + second.floats(name)) / 2 for name in COUNTERS}
    return timeline.with_frame("gpu_counters", first.with_columns(end_ns=second.end_ns, **means))


def _two_thirds_counted(timeline: Timeline) -> Timeline | None:
    """The samples end early."""
    rows = timeline["gpu_counters"]
    return timeline.with_frame("gpu_counters", rows.take(slice(len(rows) * 2 // 3))) if len(rows) else None


# --- which steps -----------------------------------------------------------------------------------------------------------


def _places(timeline: Timeline) -> Sequence[Place]:
    try:
        return prepare(timeline).places
    except PerfdoctorError:
        return ()


def _chosen(begin: Edge, end: Edge, timeline: Timeline) -> Selection | None:
    """Some of the steps that are analysed, at least three."""
    used = min((place.steps.used for place in _places(timeline)), default=0)
    first, last = begin(used), end(used)
    return Selection(steps=(first + 1, last)) if used > last - first >= _FEWEST_STEPS - 2 else None


def _cut(begin: Edge, end: Edge, timeline: Timeline) -> Timeline | None:
    """The recording of some of the steps, as a profiler that was switched on and off there would have it.

    What the host began there, and the work that it launched; of work of unknown launch what the device began.
    """
    spans: dict[int, tuple[int, int]] = {}
    for rank in timeline.ranks:
        marks = host_marks(timeline, rank)
        count = 0 if marks is None else marks.starts.size
        first, last = begin(count), end(count)
        if marks is None or not _FEWEST_STEPS <= last - first < count or first < 0:
            return None
        edges = np.append(marks.starts, max(int(marks.ends[-1]), int(marks.starts[-1]) + 1))
        spans[rank] = int(edges[first]), int(edges[last])

    def cut(signal: str, rows: Frame) -> Frame:
        at = rows.start_ns
        if signal in _DEVICE and signal != "stream_waits" and len(timeline.calls):
            call = launching_calls(timeline, signal)
            at = np.where(call == UNKNOWN, at, timeline.calls.start_ns[np.maximum(call, 0)])
        inside = rows["rank"] == UNKNOWN
        for rank, (low, high) in spans.items():
            inside |= (rows["rank"] == rank) & (at >= low) & (at < high)
        return rows.take(inside)

    found = _changed(timeline, cut, (*_DEVICE, *_HOST)) if spans else None
    # Where launches and work do not find each other, it is not known which work belongs to a step.
    return found if found and _LEAST_KERNELS * len(timeline.kernels) <= len(found.kernels) else None


def _begin(_: int) -> int:
    return 0


def _end(count: int) -> int:
    return count


# --- how work is launched --------------------------------------------------------------------------------------------------


def _as_graphs(timeline: Timeline) -> Timeline | None:
    """Each step's launches as one launch of a CUDA graph, where the device is busy all the time anyway.

    The graph's call stands where the step's first launch stood, and takes as long; the other launches are gone.
    """
    places = _places(timeline)
    if len(places) != 1 or places[0].device is None or places[0].idle.total_ns > _BUSY * places[0].window_ns:
        return None
    marks, calls = host_marks(timeline, places[0].rank), timeline.calls
    launched = {signal: launching_calls(timeline, signal) for signal in ("kernels", "collectives")}
    rows = np.unique(np.concatenate([each[each != UNKNOWN] for each in launched.values()]))
    if marks is None or not rows.size or calls.name.matches(cuda_names.GRAPH_LAUNCH)[rows].any():
        return None
    _, first, step = np.unique(
        np.searchsorted(marks.starts, calls.start_ns[rows], side="right"), return_index=True, return_inverse=True
    )
    stands_for = np.full(len(calls), UNKNOWN, np.int64)
    stands_for[rows] = rows[first][step]
    is_graph, stays = np.zeros(len(calls), dtype=bool), np.ones(len(calls), dtype=bool)
    is_graph[rows[first]] = True
    stays[rows] = is_graph[rows]
    codes = np.where(is_graph, len(calls.name.values), calls.name.codes).astype(np.int32)
    names = Text(codes, [*calls.name.values, "cudaGraphLaunch"])
    frames = {**timeline.frames, "calls": calls.with_columns(name=names).take(stays)}
    for signal, call in launched.items():
        of_graph = calls["correlation"][np.maximum(stands_for[np.maximum(call, 0)], 0)]
        joined = np.where(call == UNKNOWN, timeline[signal]["correlation"], of_graph)
        frames[signal] = timeline[signal].with_columns(correlation=joined)
    return replace(timeline, frames=frames)


# --- how a trace of torch.profiler is written ------------------------------------------------------------------------------


def _indented(document: Document) -> bytes:
    turned = {**document, "traceEvents": [dict(reversed(each.items())) for each in document["traceEvents"]]}
    return msgspec.json.format(msgspec.json.encode(turned), indent=2)


def _with_decimals(document: Document) -> bytes:
    events = [
        {
            name: float(value) if name in ("ts", "dur") and isinstance(value, int) else value
            for name, value in each.items()
        }
        for each in document["traceEvents"]
    ]
    return msgspec.json.encode({**document, "traceEvents": events})


def _in_another_order(document: Document) -> bytes:
    events = list(document["traceEvents"])
    random.Random(7).shuffle(events)
    return msgspec.json.encode({**document, "traceEvents": events})


def _without_flows(document: Document) -> bytes:
    events = [each for each in document["traceEvents"] if each.get("ph") not in ("s", "t", "f")]
    return msgspec.json.encode({**document, "traceEvents": events})


def read_trace(path: Path) -> Document:
    """A trace as a document. Raises msgspec.DecodeError where it is none."""
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    found: Document = msgspec.json.decode(content)
    return found


CHANGES: Sequence[Change] = (
    *(
        Change(f"device clock {abs(us)} µs {'late' if us > 0 else 'early'}", partial(_device_later, us * 1_000))
        for us in (40, -40, 15, -15)
    ),
    Change("device clock drifts by 20 ppm", partial(_device_drifts, 20)),
    Change("device clock drifts by −20 ppm", partial(_device_drifts, -20)),
    Change("both clocks an hour later", partial(_all_later, 3_600_000_000_000)),
    Change("another epoch", _another_day),
    Change("rows of one moment in another order", _shuffled),
    Change("other numbers of threads and processes", _other_threads),
    Change("other numbers of streams", _other_streams),
    Change("ranks permuted", _other_ranks, permutes_ranks=True),
    Change("without Python functions", partial(_without, ("functions", "modules")), less=True),
    Change("without samples of stacks", partial(_without, ("stack_samples",)), less=True),
    Change("without shapes", _without_shapes, less=True),
    Change("without ranges that mark no step", _without_own_ranges, less=True),
    Change("without the GPU's counters", partial(_without, _COUNTERS), less=True),
    Change("the GPU's counters 700 µs late", partial(_counters_later, 700_000)),
    Change("the GPU's counters 300 µs early", partial(_counters_later, -300_000)),
    Change("the GPU's counters half as often", _half_as_often),
    Change("the GPU's counters of two thirds of the time", _two_thirds_counted),
    Change("first half of the steps chosen", selection=partial(_chosen, _begin, lambda n: n // 2), part=True),
    Change("second half of the steps chosen", selection=partial(_chosen, lambda n: n // 2, _end), part=True),
    Change(
        "middle third of the steps chosen",
        selection=partial(_chosen, lambda n: n // 3, lambda n: 2 * n // 3),
        part=True,
    ),
    Change("first half recorded", partial(_cut, _begin, lambda n: max(n // 2, _FEWEST_STEPS)), part=True),
    Change("second half recorded", partial(_cut, lambda n: min(n // 2, n - _FEWEST_STEPS), _end), part=True),
    Change("one step less at the begin", partial(_cut, lambda _: 1, _end), part=True),
    Change("one step less at the end", partial(_cut, _begin, lambda n: n - 1), part=True),
    Change("all times doubled", _doubled, scaled=True),
    Change("products of other tiles", _other_tiles),
    Change("a CUDA graph a step", _as_graphs, less=True),
    Change("trace indented, keys in another order", trace=_indented),
    Change("trace with decimals", trace=_with_decimals),
    Change("events of the trace in another order", trace=_in_another_order),
    Change("trace without arrows", trace=_without_flows),
)

"""Which work takes the time of a mean step, each moment counted once, and where in the step does it stand?

The parts of a step do not overlap, but the kernels in them do. A moment belongs to what began first and still runs, so
that the times of all work sum to the step exactly, and the difference of two steps is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.comparison.records import WorkTime, summed, sums
from perfdoctor.metrics import grouping
from perfdoctor.metrics.accounting.driving_threads import below_step, driving_threads
from perfdoctor.metrics.host.own_code import own_functions
from perfdoctor.metrics.work.phases import PHASES, phase_of
from perfdoctor.model.columns import UNKNOWN, Ints, Mask, Text
from perfdoctor.model.host_rows import Nested, by_thread, named, nested_rows, own_ns, when_open
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import Launches, launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import Frame
from perfdoctor.vocabulary.kinds import COPY_DIRECTIONS
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.names.base_names import without_numbers

_HOST_MEMORY = ("pageable", "pinned", "managed")
#: What ran on the host while the device was idle, where no function of the user's own was recorded.
_HOST_SIGNALS = ("ranges", "ops", "calls")


class _WorkRows(Struct, frozen=True):
    """Rows of one place: what they are called and what of a part is theirs. Arrays have one element a row."""

    part: str
    name: Text
    ns: Ints
    group: Text
    op: Text
    shapes: Text
    phase: Ints
    module: Text
    inside: Text


def work_of(run: Run) -> tuple[WorkTime, ...]:
    """All work of a mean step of an average place, in ns; it sums to the step.

    Of a job of which only some ranks were read in full, parts are those of all ranks, and their work that of the some.
    """
    work = _of_ranks_read(run)
    return work if run.summaries is None else tuple(_as_of_all_ranks(work, run))


def _as_of_all_ranks(work: Sequence[WorkTime], run: Run) -> Iterator[WorkTime]:
    places = run.job.places
    whole = sums(
        (part, pieces.total_ns / place.units / len(places)) for place in places for part, pieces in place.parts.items()
    )
    read = sums((each.part, each.ns) for each in work)
    for each in work:
        if read[each.part]:
            yield replace(each, ns=each.ns * whole.get(each.part, 0.0) / read[each.part])
    for part, ns in whole.items():
        if ns and part not in read:
            yield WorkTime(part, "", "", "", "", "", "", "", ns, 0.0)


def _of_ranks_read(run: Run) -> tuple[WorkTime, ...]:
    weights = np.asarray(run.stands_for or [1] * len(run.places), np.float64)
    weighted = zip(run.places, (weights / weights.sum()).tolist(), strict=True)
    return summed(
        (names, ns * weight / place.units, count * weight / place.units)
        for place, weight in weighted
        for names, ns, count in _of_place(place)
    )


def _of_place(place: Place) -> Iterator[tuple[tuple[str, ...], int, int]]:
    for part, pieces in place.parts.items():
        if not pieces:
            continue
        left = pieces.total_ns
        for rows in _rows_of(place, part, pieces):
            for key, ns, count in _grouped(rows):
                left -= ns
                yield key, ns, count
        if left:
            yield (part, "", "", "", "", "", "", ""), left, 0


def _rows_of(place: Place, part: str, pieces: Intervals) -> Iterator[_WorkRows]:
    if part == "compute" and place.device is None:
        yield from _on_host(place, part, pieces, ("ops", "ranges"))
    elif part == "compute":
        yield _on_device(place, part, pieces, "kernels")
    elif part == "exposed_communication" and len(place.collectives):
        yield _on_device(place, part, pieces, "collectives")
    elif part == "exposed_copy":
        yield _on_device(place, part, pieces, "copies")
    else:
        yield from _on_host(place, part, pieces, _HOST_SIGNALS)


def _grouped(rows: _WorkRows) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """(names, ns, count) of the rows, of which those with the same names are one, and those without time none."""
    kept = np.flatnonzero(rows.ns > 0)
    if not kept.size:
        return
    texts = (rows.group, rows.name, rows.op, rows.shapes, rows.module, rows.inside)
    codes = [text.codes[kept].astype(np.int64) for text in texts]
    group, first = grouping.combined(*codes, rows.phase[kept])
    ns, count = grouping.sums(group, rows.ns[kept], first.size), np.bincount(group, minlength=first.size)
    for at, row in enumerate(kept[first].tolist()):
        kind, name, op, shapes, module, inside = (text[row] for text in texts)
        phase = PHASES[int(rows.phase[row])]
        yield (rows.part, kind, name, op, shapes, phase, module, inside), int(ns[at]), int(count[at])


# --- on the device ---------------------------------------------------------------------------------------------------


def _on_device(place: Place, part: str, pieces: Intervals, signal: str) -> _WorkRows:
    """The rows of `signal` on the device, each with the time of `pieces` in which it was the first that still ran."""
    frame = place.own(signal)
    first = np.maximum(frame.start_ns, _reach(frame))
    if signal == "kernels":
        name, group = frame.name, frame.name.mapped(kernel_names.family)
    elif signal == "copies":
        name, group = _copy_names(frame.text("direction"), frame.text("host_memory")), frame.text("direction")
    else:
        name, group = frame.name, frame.text("kind")
    none = Text.constant("", len(frame))
    where = (none, none, np.zeros(len(frame), np.int64), none, none)
    if place.device is not None:
        launched = launches_of(place, signal)
        where = (*_op(place, launched, none), phase_of(place, launched), *_module_and_range(place, launched, none))
    return _WorkRows(part, name, pieces.overlap_ns(first, np.maximum(frame.end_ns, first)), group, *where)


def _reach(frame: Frame) -> Ints:
    """For each row, the latest end of the rows that began before it, in ns."""
    least = np.iinfo(np.int64).min
    return np.concatenate(([least], np.maximum.accumulate(frame.end_ns)[:-1])) if len(frame) else frame.end_ns


def _copy_names(directions: Text, memories: Text) -> Text:
    """The name of each copy: `copies host to GPU, pinned memory`."""
    pairs = directions.codes.astype(np.int64) * max(len(memories.values), 1) + memories.codes
    different, codes = np.unique(pairs, return_inverse=True)
    values = []
    for pair in different.tolist():
        of_direction, of_memory = divmod(pair, len(memories.values))
        direction, memory = directions.values[of_direction], memories.values[of_memory]
        where = f"copies {COPY_DIRECTIONS.get(direction, direction)}"
        values.append(f"{where}, {memory} memory" if memory in _HOST_MEMORY else where)
    return Text(codes.ravel().astype(np.int32), values)


def _op(place: Place, launched: Launches, none: Text) -> tuple[Text, Text]:
    """The innermost op that launched each row, and the shapes of its inputs; `none` without ops."""
    ops = place.timeline.ops
    if not len(ops):
        return none, none
    at = launched.enclosing("ops")
    return _taken(ops.name, at), _taken(ops.text("input_shapes"), at)


def _taken(text: Text, rows: Ints) -> Text:
    """The text of each of `rows`; "" where that is UNKNOWN."""
    codes = np.where(rows == UNKNOWN, len(text.values), text.codes[np.maximum(rows, 0)])
    return Text(codes.astype(np.int32), [*text.values, ""])


def _module_and_range(place: Place, launched: Launches, none: Text) -> tuple[Text, Text]:
    """The innermost module around each launch, and the innermost range that is no step; `none` where not recorded."""
    functions, ranges = place.timeline["functions"], place.timeline.ranges
    modules = named(place.timeline, "functions", torch_names.MODULE) if len(functions) else np.zeros(0, bool)
    module, inside = none, none
    if modules.any():
        module = _taken(functions.name, _inside(place, launched, "functions", modules)).mapped(
            lambda name: name.removeprefix(torch_names.MODULE_PREFIX)
        )
    if len(ranges):
        inside = _taken(ranges.name, _inside(place, launched, "ranges", _no_steps(place, ranges))).mapped(
            without_numbers
        )
    return module, inside


def _no_steps(place: Place, ranges: Frame) -> Mask:
    """One bool for each of `ranges`: is it neither a mark of steps nor a range of torch's own?"""
    steps = ranges.name.matches(torch_names.PROFILER_STEP) | ranges.name.matches(torch_names.OPTIMIZER_RANGE)
    marks = host_marks(place.timeline, place.rank)
    if marks is not None and marks.found_by == "user-range":
        steps |= np.isin(ranges.start_ns, marks.starts)
    own: Mask = ~steps
    return own


def _inside(place: Place, launched: Launches, signal: str, chosen: Mask) -> Ints:
    """The innermost chosen row around each launch, as a row of the timeline's frame."""
    rows: Nested = nested_rows(place.timeline, place.rank, signal)
    if not len(rows.rows):
        return np.full(launched.rows.size, UNKNOWN, np.int64)
    inner = rows.innermost_of(chosen[rows.numbers])
    at = launched.inside(rows)
    found = np.where(at == UNKNOWN, UNKNOWN, inner[np.maximum(at, 0)])
    return np.where(found == UNKNOWN, UNKNOWN, rows.numbers[np.maximum(found, 0)]).astype(np.int64)


# --- on the host -----------------------------------------------------------------------------------------------------


def _on_host(place: Place, part: str, pieces: Intervals, signals: Sequence[str]) -> Iterator[_WorkRows]:
    """What the host ran innermost in the `pieces` of a part, on the thread that ran most: own lines if recorded."""
    rows, with_shapes = _host_rows(place, signals, own_lines=part != "compute")
    if not len(rows):
        return
    ns = own_ns(rows, pieces)
    threads = [own for _, own in by_thread(rows)]
    busiest = max(threads, key=lambda own: int(ns[own].sum()))
    chosen, size = rows.take(busiest), busiest.size
    none = Text.constant("", size)
    names = chosen.name.mapped(without_numbers)
    is_op = part == "compute"
    yield _WorkRows(
        part, names, ns[busiest], none, names if is_op else none,
        chosen.text("input_shapes") if with_shapes else none, _host_phase(place, chosen, is_work=is_op), none, none,
    )  # fmt: skip


def _host_phase(place: Place, rows: Frame, *, is_work: bool) -> Ints:
    """The phase of each row as in `phase_of`, of the ops that are the work on a run without a GPU; else the first."""
    if not is_work:
        return np.zeros(len(rows), np.int64)
    backward = when_open(place.timeline, place.rank, torch_names.AUTOGRAD_NODE, "ops")
    updating = when_open(place.timeline, place.rank, torch_names.OPTIMIZER_RANGE, "ops", "ranges")
    inside = [spans.overlap_ns(rows.start_ns, rows.start_ns + 1) > 0 for spans in (updating, backward)]
    rest = 1 if backward else 0  # what is no backward pass is known only where one was seen
    return np.where(inside[0], 3, np.where(inside[1], 2, rest)).astype(np.int64)


def _host_rows(place: Place, signals: Sequence[str], *, own_lines: bool) -> tuple[Frame, bool]:
    """Rows of the threads that drive the place, as one frame; and whether they have shapes."""
    threads, marks = driving_threads(place.timeline, place.rank), host_marks(place.timeline, place.rank)
    functions = own_functions(place.timeline, place.rank).rows
    functions = functions.take(np.isin(functions["thread"], threads))
    if own_lines and len(functions):
        return functions, False
    frames = []
    for signal in signals:
        rows = place.timeline[signal].of(rank=place.rank)
        rows = rows.take(np.isin(rows["thread"], threads))
        rows = below_step(rows, marks) if signal == "ranges" else rows
        shapes = rows.columns.get("input_shapes", Text.constant("", len(rows)))
        kept = {name: rows.columns[name] for name in ("rank", "process", "thread", "start_ns", "end_ns", "name")}
        frames.append(Frame({**kept, "input_shapes": shapes}))
    return Frame.join(frames), True

"""What did each kernel cost, over all ranks: how often, how long, how evenly, and what launched it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics import grouping
from perfdoctor.metrics.grouping import GroupSpread
from perfdoctor.metrics.host.own_code import own_function, own_functions
from perfdoctor.metrics.placed_groups import PlacedGroups
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Text
from perfdoctor.patterns import regex
from perfdoctor.records.time_split import KernelRow
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import xla as xla_names

#: Names of element types as torch writes them, and as they are usually written.
_TYPES = {
    "float": "fp32", "double": "fp64", "c10::half": "fp16", "c10::bfloat16": "bf16", "half": "fp16",
    "bfloat16": "bf16", "c10::float8_e4m3fn": "fp8", "c10::float8_e5m2": "fp8",
    "float32": "fp32", "float64": "fp64", "float16": "fp16", "long int": "int64", "long": "int64", "int": "int32",
    "unsigned char": "uint8", "signed char": "int8", "bool": "bool",
}  # fmt: skip
_TYPE = regex(r'"([^"]*)"')


class KernelCosts(Struct, frozen=True):
    """One element a name, the longest in all first. Collectives are kernels, too, of the family `communication`.

    `took`: whole durations of those that touch a window, in ns. `ns` is what lay inside the windows; `runs_per_step`
    and `ns_per_step` are of a step (of the window where none were found) of an average place. `ops`, `lines`: what
    launched most of the time; "" where that is unknown. `data_types`: by the kernel's name, else that of its op's
    first tensor. `slowest`: the place whose runs take longest on the mean, (rank, device), and `slower_share`, by how
    much longer than on the middle place; None and NaN where only one place runs it.
    """

    names: tuple[str, ...]
    families: tuple[str, ...]
    math_paths: tuple[str, ...]
    data_types: tuple[str, ...]
    took: GroupSpread
    ns: Floats
    runs_per_step: Floats
    ns_per_step: Floats
    blocks: Ints
    threads_per_block: Ints
    shared_memory_bytes: Ints
    ops: tuple[str, ...]
    lines: tuple[str, ...]
    slowest: tuple[tuple[int, int] | None, ...]
    slower_share: Floats

    def __len__(self) -> int:
        return len(self.names)


def kernel_costs(run: Run) -> KernelCosts | None:
    """Costs of all kernels by name; None where none ran on a device."""
    parts = [
        (number, place, frame)
        for number, place in enumerate(run.places)
        if place.device is not None
        for frame in (place.kernels, place.collectives)
    ]
    if not sum(len(frame) for *_, frame in parts):
        return None
    names = Text.join([frame.name for *_, frame in parts])
    group, size = names.codes.astype(np.int64), len(names.values)
    place_of = np.concatenate([np.full(len(frame), number) for number, _, frame in parts])
    inside = np.concatenate([place.window.overlap_ns(frame.start_ns, frame.end_ns) for _, place, frame in parts])
    took = np.concatenate([frame.duration_ns for *_, frame in parts])
    groups = PlacedGroups(run.places, place_of, group, inside, size)
    order = groups.order.tolist()
    listed = [names.values[code] for code in order]
    blocks, threads = _geometry(parts, group, inside, size)
    shared = grouping.prevailing(group, _joined(parts, "shared_memory_bytes"), inside, size)
    ops, types, lines = _launched_by(run, group, inside, size)
    slowest, slower = _slowest(grouping.ratio(groups.by_place(took), groups.by_place(groups.runs())), run.places)
    return KernelCosts(
        names=tuple(listed),
        families=tuple(kernel_names.family_or_communication(name) for name in listed),
        math_paths=tuple(math_path(name) for name in listed),
        data_types=tuple(_data_type(names.values[code], types[code]) for code in order),
        took=groups.spread(took),
        ns=groups.sums(inside),
        runs_per_step=groups.per_step(groups.runs()),
        ns_per_step=groups.per_step(inside),
        blocks=blocks[groups.order],
        threads_per_block=threads[groups.order],
        shared_memory_bytes=shared[groups.order],
        ops=tuple(ops[code] for code in order),
        lines=tuple(lines[code] for code in order),
        slowest=slowest,
        slower_share=slower,
    )


def math_path(name: str) -> str:
    """The math path of a kernel that multiplies matrices, "" of others."""
    return kernel_names.math_path(name) if kernel_names.family_or_communication(name) in MATMUL_FAMILIES else ""


def _data_type(name: str, of_op: str) -> str:
    """The data type by the kernel's name, else that of its op; "" of collectives, which have theirs elsewhere."""
    family = kernel_names.family_or_communication(name)
    if family == "communication":
        return ""
    return (kernel_names.narrow_data_type(name) if family in MATMUL_FAMILIES else "") or of_op


def short_types(types: str) -> str:
    """An op's input types by their usual names: `["c10::BFloat16", "Scalar"]` is `bf16, Scalar`."""
    names = [_TYPES.get(found.lower(), found) for found in _TYPE.findall(types)]
    return ", ".join(names).rstrip(", ")


def first_type(types: str) -> str:
    """The first type of a tensor among an op's recorded input types; "" where there is none."""
    return next((_TYPES[found.lower()] for found in _TYPE.findall(types) if found.lower() in _TYPES), "")


_Parts = list[tuple[int, Place, Frame]]


def _joined(parts: _Parts, name: str) -> Ints:
    """A column of all frames, UNKNOWN in those that have no such column."""
    columns = [frame.columns.get(name, np.full(len(frame), UNKNOWN)) for *_, frame in parts]
    return np.concatenate(columns).astype(np.int64)


def _geometry(parts: _Parts, group: Ints, weight: Ints, size: int) -> tuple[Ints, Ints]:
    """The blocks and threads in which each name spends most time."""
    blocks, threads = _joined(parts, "blocks"), _joined(parts, "threads_per_block")
    pair, first = grouping.combined(blocks, threads)
    chosen = grouping.prevailing(group, pair, weight, size)
    at = first[np.maximum(chosen, 0)]
    return np.where(chosen == UNKNOWN, UNKNOWN, blocks[at]), np.where(chosen == UNKNOWN, UNKNOWN, threads[at])


def _launched_by(run: Run, group: Ints, weight: Ints, size: int) -> tuple[list[str], list[str], list[str]]:
    """For each name the op, the type of its first tensor, and the own function that launch most of its time."""
    ops, functions = run.timeline.ops, run.timeline["functions"]
    # Where no framework names its ops, XLA names its instructions, in ranges around their launches.
    source, named = ("ops", str) if len(ops) else ("ranges", xla_names.instruction)
    op_codes, type_codes, line_codes = [], [], []
    for place in run.places:
        for signal in ("kernels", "collectives") if place.device is not None else ():
            launched = launches_of(place, signal)
            op = launched.enclosing("ops")
            op_codes.append(_codes(run.timeline[source].name, launched.enclosing(source)))
            type_codes.append(_codes(ops.text("input_types"), op))
            line_codes.append(_codes(own_functions(run.timeline, place.rank).rows.name, own_function(launched)))

    def prevailing(codes: list[Ints], values: Text, change: Callable[[str], str] = str) -> list[str]:
        joined = np.concatenate(codes)
        known = joined != UNKNOWN
        chosen = grouping.prevailing(group[known], joined[known], weight[known], size)
        return [change(values.values[code]) if code != UNKNOWN else "" for code in chosen.tolist()]

    return (
        prevailing(op_codes, run.timeline[source].name, named),
        prevailing(type_codes, ops.text("input_types"), first_type),
        prevailing(line_codes, functions.name),
    )


def _codes(text: Text, rows: Ints) -> Ints:
    """The code of the text in each of these rows, UNKNOWN where the row is."""
    if not len(text):
        return np.full(rows.size, UNKNOWN, dtype=np.int64)
    return np.where(rows == UNKNOWN, UNKNOWN, text.codes[np.maximum(rows, 0)]).astype(np.int64)


def _slowest(means: Floats, places: tuple[Place, ...]) -> tuple[tuple[tuple[int, int] | None, ...], Floats]:
    """For each name the place with the longest mean, and by which share it exceeds the middle one.

    `means`: a row a place, a column a name.
    """
    running = ~np.isnan(means)
    several = running.sum(axis=0) > 1
    filled = np.where(running, means, -np.inf)
    worst = filled.argmax(axis=0)
    ordered = np.sort(np.where(running, means, np.inf), axis=0)
    count, column = running.sum(axis=0), np.arange(means.shape[1])
    last = means.shape[0] - 1
    low, high = np.clip((count - 1) // 2, 0, last), np.clip(count // 2, 0, last)
    middle = np.where(several, (ordered[low, column] + ordered[high, column]) / 2, np.nan)
    slower = grouping.ratio(filled.max(axis=0), middle) - 1
    found = tuple(
        places[at].rank_and_device if is_known else None
        for at, is_known in zip(worst.tolist(), several.tolist(), strict=True)
    )
    return found, slower


#: Rows of the table of kernels in a diagnosis: fewer hide the tail.
TABLE_ROWS = 30


def kernel_rows(places: Sequence[Place], most: int | None = None) -> tuple[KernelRow, ...]:
    """Kernels and collectives by name, with times inside the windows of these places; only the `most` costliest."""
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    for place in places:
        for frame in (place.kernels, place.collectives):
            ns = place.window.overlap_ns(frame.start_ns, frame.end_ns)
            for name, count, total in frame.name.sums(ns):
                counts[name] = counts.get(name, 0) + count
                totals[name] = totals.get(name, 0) + int(total)
    top = sorted(totals, key=lambda name: (-totals[name], name))[:most]
    return tuple(
        KernelRow(
            name, kernel_names.family_or_communication(name), math_path(name), counts[name], totals[name],
            totals[name] // counts[name],
        )
        for name in top
    )  # fmt: skip

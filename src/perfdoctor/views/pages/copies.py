"""The page `copies`: what is copied, in which direction, how fast, and by which op?"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.metrics import grouping
from perfdoctor.metrics.copies.costs import SIZE_EDGES, CopyCosts, copy_costs
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Table, TableColumn
from perfdoctor.views.tables import a_step, basis, numbers, of_the_step, table, text
from perfdoctor.vocabulary.kinds import COPY_DIRECTIONS

#: More than any training has different ops that copy.
_MOST_ROWS = 300
_EDGES = ("4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB")
assert len(_EDGES) == len(SIZE_EDGES)


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table]:
    costs = copy_costs(run)
    if costs is None:
        return
    explained = f"Also by the type of host memory, longest first. {basis(run)}"
    sizes = text("size", [_size(place) for place in costs.size_classes.tolist()])
    yield from table(
        "copies", "copies", "Copies by direction and size", explained, _columns(run, costs, sizes), most=_MOST_ROWS
    )
    by_op = copy_costs(run, by_op=True)
    if by_op is None or not any(by_op.ops):
        return
    explained = f"The same copies, by the outermost op that launched them. {basis(run)}"
    ops = text("launched by", [op or "not recorded" for op in by_op.ops])
    yield from table("copies", "copies-by-op", "Copies by op", explained, _columns(run, by_op, ops), most=_MOST_ROWS)


def _size(place: int) -> str:
    if place == UNKNOWN:
        return ""
    if place == 0:
        return f"below {_EDGES[0]}"
    return f"{_EDGES[place - 1]} to {_EDGES[place]}" if place < len(_EDGES) else f"from {_EDGES[-1]}"


def _columns(run: Run, costs: CopyCosts, first: TableColumn) -> list[TableColumn]:
    step = a_step(run)
    return [
        first,
        text("direction", [COPY_DIRECTIONS.get(each, each) for each in costs.directions]),
        text("host memory", [each if each not in ("none", "unknown") else "" for each in costs.host_memories]),
        numbers(f"copies{step}", "count", costs.count_per_step, adds_up=True),
        numbers(f"bytes{step}", "bytes", costs.bytes_per_step, adds_up=True),
        numbers(f"time{step}", "ns", costs.ns_per_step, adds_up=True),
        numbers(f"exposed{step}", "ns", costs.exposed_ns_per_step, "While nothing else ran on the GPU.", adds_up=True),
        numbers(f"exposed, {of_the_step(run)}", "share", costs.exposed_ns_per_step / max(run.step_ns, 1), adds_up=True),
        numbers("mean size", "bytes", costs.sizes.mean),
        numbers("largest", "bytes", costs.sizes.most),
        numbers("mean", "ns", costs.took.mean, "Of one copy."),
        numbers("longest", "ns", costs.took.most),
        numbers("bandwidth", "bytes_per_second", costs.rate, "Median over the copies."),
        numbers("peak bandwidth", "bytes_per_second", costs.bound, "Of the link or the memory, one way."),
        numbers("of the peak", "share", grouping.ratio(costs.rate, costs.bound)),
        numbers("total count", "count", costs.took.count, "In all ranks and steps analysed.", adds_up=True),
    ]

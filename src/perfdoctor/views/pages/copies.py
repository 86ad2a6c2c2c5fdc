"""The page `copies`: what is copied from where to where, how fast, and who asked for it?"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.metrics import grouping
from perfdoctor.metrics.copies.costs import SIZE_EDGES, CopyCosts, copy_costs
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Table, TableColumn
from perfdoctor.views.tables import a_step, looked_at, numbers, of_the_step, table, text
from perfdoctor.vocabulary.kinds import COPY_DIRECTIONS

#: More than the different ops of any training that copy.
_MOST_ROWS = 300
_EDGES = ("4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB")
assert len(_EDGES) == len(SIZE_EDGES)


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table]:
    costs = copy_costs(run)
    if costs is None:
        return
    told = f"Also by the host memory they use; those that take longest first. {looked_at(run)}"
    sizes = text("size", [_size(place) for place in costs.size_classes.tolist()])
    yield from table(
        "copies", "copies", "Copies by direction and size", told, _columns(run, costs, sizes), most=_MOST_ROWS
    )
    askers = copy_costs(run, by_op=True)
    if askers is None or not any(askers.ops):
        return
    told = f"The same copies, by the outermost op of the host that asked for them. {looked_at(run)}"
    asked = text("asked by", [op or "not recorded" for op in askers.ops])
    yield from table(
        "copies", "copies-by-op", "Copies by who asks", told, _columns(run, askers, asked), most=_MOST_ROWS
    )


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
        numbers(f"exposed{step}", "ns", costs.exposed_ns_per_step, "With nothing else on the GPU.", adds_up=True),
        numbers(f"exposed, {of_the_step(run)}", "share", costs.exposed_ns_per_step / max(run.step_ns, 1), adds_up=True),
        numbers("mean size", "bytes", costs.sizes.mean),
        numbers("largest", "bytes", costs.sizes.most),
        numbers("mean", "ns", costs.took.mean, "Of one copy."),
        numbers("longest", "ns", costs.took.most),
        numbers("bandwidth", "bytes_per_second", costs.rate, "The median of the copies' own."),
        numbers("at most", "bytes_per_second", costs.bound, "What the link or the memory gives, one way."),
        numbers("of that", "share", grouping.ratio(costs.rate, costs.bound)),
        numbers("copies in all", "count", costs.took.count, "Of all ranks and steps looked at.", adds_up=True),
    ]

"""The page `communication`: what do collectives cost, who waits, and how fast are the links?"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.metrics import grouping
from perfdoctor.metrics.communication.costs import CollectiveCosts, collective_costs
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Table, TableColumn
from perfdoctor.views.tables import a_step, looked_at, numbers, of_the_step, table, text

#: Of a model with hundreds of layers of different sizes, each with its own messages.
_MOST_ROWS = 500


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table]:
    costs = collective_costs(run)
    if costs is None:
        return
    told = f"Also by group and type; those that take longest first. {looked_at(run)}"
    yield from table(
        "communication", "collectives", "Collectives by kind and size", told, _columns(run, costs), most=_MOST_ROWS
    )


def _columns(run: Run, costs: CollectiveCosts) -> list[TableColumn]:
    step, took = a_step(run), costs.took
    return [
        text("collective", costs.kinds),
        numbers("message", "bytes", costs.sizes, "As nccl-tests count it: what a rank ends up with, or begins with."),
        text("data type", costs.data_types),
        numbers("ranks", "count", costs.ranks, "In its group."),
        text("group", costs.groups),
        numbers(f"runs{step}", "count", costs.count_per_step, adds_up=True),
        numbers(f"time{step}", "ns", costs.ns_per_step, "In the collective, waiting included.", adds_up=True),
        numbers(of_the_step(run), "share", costs.ns_per_step / max(run.step_ns, 1), adds_up=True),
        numbers(f"exposed{step}", "ns", costs.exposed_ns, "While nothing computed.", adds_up=True),
        numbers(f"hidden{step}", "ns", costs.hidden_ns, "Beside compute.", adds_up=True),
        numbers(
            f"waiting{step}", "ns", costs.waiting_ns,
            "Until the last rank had come, on the mean; known where several ranks were recorded.", adds_up=True,
        ),
        numbers("mean", "ns", took.mean, "Of one run."),
        numbers("median", "ns", took.median),
        numbers("shortest", "ns", took.least),
        numbers("longest", "ns", took.most),
        numbers("transfer", "ns", costs.transfer_ns, "The median from the arrival of the last rank to the end."),
        numbers("algorithm bandwidth", "bytes_per_second", costs.algorithm_bandwidth, "Message over transfer."),
        numbers(
            "bus bandwidth", "bytes_per_second", costs.bus_bandwidth,
            "The load of one link, as nccl-tests define it; known where the whole group was recorded.",
        ),
        numbers(
            "fastest bus bandwidth", "bytes_per_second", costs.fastest_bus,
            "Of the shortest run: what the links gave at least.",
        ),
        numbers("links give", "bytes_per_second", costs.bound, "As measured, or by the board's data sheet."),
        text("going by", costs.bound_sources),
        numbers("of that", "share", grouping.ratio(costs.bus_bandwidth, costs.bound), "Bus bandwidth."),
        numbers("runs in all", "count", took.count, "Of all ranks and steps looked at.", adds_up=True),
    ]  # fmt: skip

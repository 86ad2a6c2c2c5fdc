"""The page `communication`: how long do collectives take, who waits, and how fast are the links?"""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.metrics import grouping
from perfdoctor.metrics.communication.costs import CollectiveCosts, collective_costs
from perfdoctor.metrics.communication.nccl import NcclLog
from perfdoctor.metrics.communication.parallelism import group_uses, key_of
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Table, TableColumn
from perfdoctor.views.tables import a_step, basis, numbers, of_the_step, table, text


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table]:
    costs = collective_costs(run)
    if costs is not None:
        explained = f"Also by group and data type, longest first. {basis(run)}"
        yield from table(
            "communication", "collectives", "Collectives by kind and size", explained, _columns(run, costs)
        )
    yield from _of_log(NcclLog.of(run.timeline))


def _parallelism(run: Run, costs: CollectiveCosts) -> list[str]:
    uses = group_uses(run)
    keys = (key_of(group, kind) for group, kind in zip(costs.groups, costs.kinds, strict=True))
    return [uses[key].kind if key in uses else "" for key in keys]


def _of_log(log: NcclLog) -> Iterator[Table]:
    """What NCCL's log says of the job: its communicators, how they are connected, and what was called on them."""
    built = log.communicators()
    columns = [
        numbers("ranks", "count", list(built)),
        numbers("communicators", "count", list(built.values()), adds_up=True),
    ]
    yield from table("communication", "nccl-communicators", "Communicators in NCCL's log", "By their size.", columns)
    called = log.collectives()
    explained = "What one rank called in all that was logged, on communicators of a size; most bytes first."
    columns = [
        text("collective", [row.kind for row in called]),
        numbers("ranks", "count", [row.ranks for row in called], "Of the communicator."),
        numbers("calls of a rank", "count", [row.calls for row in called]),
        numbers("bytes of a rank", "bytes", [row.bytes_a_rank for row in called], adds_up=True),
        numbers("largest message", "bytes", [row.largest_bytes for row in called]),
    ]
    yield from table("communication", "nccl-collectives", "Collectives in NCCL's log", explained, columns)


def _columns(run: Run, costs: CollectiveCosts) -> list[TableColumn]:
    step, took = a_step(run), costs.took
    return [
        text("collective", costs.kinds),
        numbers("message", "bytes", costs.sizes, "As in nccl-tests: the larger of a rank's input and result."),
        text("data type", costs.data_types),
        numbers("ranks", "count", costs.ranks, "In its group."),
        text("group", costs.groups),
        text("parallelism", _parallelism(run, costs), "What the group's ranks divide, by its name or its messages."),
        numbers(f"count{step}", "count", costs.count_per_step, adds_up=True),
        numbers(f"time{step}", "ns", costs.ns_per_step, "In the collective, including waiting.", adds_up=True),
        numbers(of_the_step(run), "share", costs.ns_per_step / max(run.step_ns, 1), adds_up=True),
        numbers(f"exposed{step}", "ns", costs.exposed_ns, "While no compute kernel ran.", adds_up=True),
        numbers(f"hidden{step}", "ns", costs.hidden_ns, "Overlapped with compute.", adds_up=True),
        numbers(
            f"waiting{step}", "ns", costs.waiting_ns,
            "Until the last rank arrived, mean of the ranks; of one rank alone at least what no transfer takes.",
            adds_up=True,
        ),
        numbers("mean", "ns", took.mean, "Of one collective."),
        numbers("median", "ns", took.median),
        numbers("shortest", "ns", took.least),
        numbers("longest", "ns", took.most),
        numbers("transfer", "ns", costs.transfer_ns, "Median time from the arrival of the last rank to the end."),
        numbers("algorithm bandwidth", "bytes_per_second", costs.algorithm_bandwidth, "Message size over transfer."),
        numbers(
            "bus bandwidth", "bytes_per_second", costs.bus_bandwidth,
            "As defined by nccl-tests, comparable with the link; known if the whole group was recorded.",
        ),
        numbers(
            "fastest bus bandwidth", "bytes_per_second", costs.fastest_bus,
            "Of the shortest execution: a lower bound of the link's bandwidth.",
        ),
        numbers("link bandwidth", "bytes_per_second", costs.bound, "As measured, or from the board's data sheet."),
        text("source", costs.bound_sources, "Of the link bandwidth."),
        numbers(
            "of the link", "share", grouping.ratio(costs.bus_bandwidth, costs.bound), "Bus over link bandwidth."
        ),
        numbers("total count", "count", took.count, "In all ranks and steps analysed.", adds_up=True),
    ]  # fmt: skip

"""The page `kernels`: which kernels take the time, and which families of kernels?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from perfdoctor.metrics import grouping
from perfdoctor.metrics.counters.kinds import measured_of_all
from perfdoctor.metrics.kernels.costs import KernelCosts, kernel_costs
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.views import Table, TableColumn
from perfdoctor.views.tables import a_step, basis, numbers, of_the_step, table, text
from perfdoctor.vocabulary.kinds import MATH_PATHS


def view(run: Run, diagnosis: Diagnosis) -> Iterator[Table]:
    costs = kernel_costs(run)
    if costs is None:
        return
    explained = f"Costliest first. {basis(run)}"
    yield from table("kernels", "kernels", "Kernels by name", explained, _by_name(run, costs))
    explained = "The family is derived from a kernel's name."
    yield from table("kernels", "kernel-families", "Kernels by family", explained, _by_family(run, costs))


def _by_name(run: Run, costs: KernelCosts) -> list[TableColumn]:
    step, took = a_step(run), costs.took
    several = len({place.rank for place in run.places}) < len(run.places)  # several devices of one rank
    return [
        text("kernel", [name.removeprefix("void ") for name in costs.names]),
        text("family", costs.families, "Derived from the name."),
        numbers(f"time{step}", "ns", costs.ns_per_step, "On the GPU; concurrent kernels count each.", adds_up=True),
        numbers(of_the_step(run), "share", costs.ns_per_step / max(run.step_ns, 1), adds_up=True),
        numbers(f"count{step}", "count", costs.runs_per_step, adds_up=True),
        numbers("mean", "ns", took.mean, "Of one execution."),
        numbers("median", "ns", took.median),
        numbers("shortest", "ns", took.least),
        numbers("longest", "ns", took.most),
        text("math path", [MATH_PATHS.get(path, "") for path in costs.math_paths], "If the name proves it."),
        text("data type", costs.data_types, "From the name, otherwise of the op's first tensor."),
        numbers("blocks", "count", costs.blocks, "Of the grid with most of its time."),
        numbers("threads a block", "count", costs.threads_per_block),
        numbers("shared memory a block", "bytes", costs.shared_memory_bytes, "With most of its time."),
        *counter_columns(run, "name", costs.names),
        text("launched by", costs.ops, "The innermost op, or HLO instruction, with most of its launches."),
        text("user function", costs.lines, "The innermost function of your code around that op."),
        text("slowest", [_place(each, devices=several) for each in costs.slowest], "Where executions take longest."),
        numbers("slower by", "share", costs.slower_share, "Compared with the median rank."),
        numbers("total count", "count", took.count, "In all ranks and steps analysed.", adds_up=True),
        numbers("total time", "ns", costs.ns, "In all ranks and steps analysed.", adds_up=True),
    ]


def _place(place: tuple[int, int] | None, *, devices: bool) -> str:
    if place is None:
        return ""
    return f"rank {place[0]}, GPU {place[1]}" if devices else f"rank {place[0]}"


def _by_family(run: Run, costs: KernelCosts) -> list[TableColumn]:
    step = a_step(run)
    names, group = np.unique(np.array(costs.families), return_inverse=True)
    size, group = names.size, group.ravel().astype(np.int64)
    ns, runs = (grouping.sums(group, each, size) for each in (costs.ns_per_step, costs.runs_per_step))
    paths = np.array(costs.math_paths)
    proven, tensor = (
        grouping.sums(group, np.where(np.isin(paths, which), costs.ns_per_step, 0), size)
        for which in (("tensor_core", "no_tensor_core"), ("tensor_core",))
    )
    order = np.argsort(-ns, kind="stable")
    on_tensor_cores = "Of the time of kernels whose name proves their math path."
    listed = names[order].tolist()
    return [
        text("family", listed),
        numbers(f"time{step}", "ns", ns[order], adds_up=True),
        numbers(of_the_step(run), "share", (ns / max(run.step_ns, 1))[order], adds_up=True),
        numbers("of all kernels", "share", grouping.ratio(ns, np.full(size, ns.sum()))[order], adds_up=True),
        numbers(f"count{step}", "count", runs[order], adds_up=True),
        numbers("mean", "ns", grouping.ratio(ns, runs)[order]),
        numbers("different kernels", "count", np.bincount(group, minlength=size)[order], adds_up=True),
        numbers("on tensor cores", "share", grouping.ratio(tensor, proven)[order], on_tensor_cores),
        *counter_columns(run, "family", listed),
    ]


def counter_columns(run: Run, by: Literal["name", "family"], kinds: Sequence[str]) -> list[TableColumn]:
    """What the GPU's counters measured while these kernels ran; columns without a number are not shown."""
    measured = measured_of_all(run.places, by, kinds)
    samples = numbers("counter samples", "count", measured["samples"], "In which any of them ran.")
    return [*measured_columns(measured), samples]


def measured_columns(measured: Mapping[str, Floats]) -> list[TableColumn]:
    """What the GPU's counters measured while kernels ran, by each of RATES."""
    said = "By the GPU's counters, without what ran beside it; empty where that is not sure to 5 points."
    return [
        numbers("SM active", "share", measured["sm_active_share"], said),
        numbers("tensor cores active", "share", measured["tensor_active_share"], said),
        numbers("DRAM throughput", "share", measured["dram_share"], f"Read and written, of its peak. {said}"),
    ]

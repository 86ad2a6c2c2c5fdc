"""Many kernels that are too small to fill the device; on a run without a GPU, many ops too short for their asking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.of_host import TimeOfOps, of_host_ops
from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import CERTAIN_SHARE, Shares
from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.finding_rows import saved_alone_ns
from perfdoctor.metrics.host.op_loops import beyond_dispatch_ns, op_loops
from perfdoctor.metrics.host.short_ops import short_ops
from perfdoctor.metrics.kernels.chains import merged_runs_ns
from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.metrics.units import ms, us
from perfdoctor.model.columns import Mask
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names import kernels as kernel_names

#: Families that a compiler fuses with their neighbours; a matmul is not fused away.
_FUSABLE = ("elementwise", "reduction", "normalization", "embedding", "other")


def _small(place: Place, at: Mapping[str, float]) -> Mask:
    """One bool a kernel: is it short, with fewer blocks than the device has SMs, and may a compiler fuse it?"""
    kernels = place.kernels
    short = kernels.duration_ns < at["short_kernel_ns"]
    blocks, processors = kernels["blocks"], place.info.sm_count
    leaves_room = (blocks < processors) | (blocks <= 0) if processors else np.ones(len(kernels), dtype=bool)
    # Fused already, or nothing that a compiler fuses (layout-transposes owns those).
    of_others = kernels.name.where(kernel_names.is_compiled) | kernels.name.where(kernel_names.is_layout_change)
    alone = ~(kernels["is_graph"] != 0) & ~in_optimizer(place) & ~of_others
    small: Mask = short & leaves_room & place.kernel_rows(*_FUSABLE) & alone
    return small


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find small kernels by their own running time; the gaps between them are launch-bound's."""
    if host_places(run):
        yield from _on_host(run, at)
        return

    found = of_kernels(run, lambda place: _small(place, at), at["min_share_of_step"])
    if found is None or found.per_step < at["min_kernels_per_step"]:
        return
    worst, rows, saving = found.worst, found.worst_rows, _saving(run, found.ns, at)
    yield found.finding(
        rule="small-kernels",
        saving=saving,
        confidence="medium" if worst.info.sm_count else "low",
        values={
            "small_per_step": found.per_step,
            **found.time_values("small"),
            "mean_us": us(float(worst.kernel_ns[rows].mean()) if rows.any() else 0.0),
            "turns": 0,  # of loops, which show in ops alone
            "looped_ms": 0.0,
            "left_ms": ms(found.ns - saving.likely),
            "left_at_most_ms": ms(found.ns - saving.low),
        },
        evidence=(Measure("small kernels a step", found.per_step, "count"), Measure("their time", found.ns, "ns")),
    )


def _saving(run: Run, affected_ns: int, at: Mapping[str, float]) -> Saving:
    """The saving if one kernel is left of each run of them; at least, sums and gathers stay kernels of their own."""

    def saved(place: Place, *, apart: bool) -> float:
        rows = _small(place, at)
        breaks = rows & ~place.kernel_rows("elementwise") & apart
        return saved_alone_ns(place, rows, merged_runs_ns(place, rows, breaks))

    low, likely = (run.mean(partial(saved, apart=apart)) for apart in (True, False))
    return Saving(min(low, likely, affected_ns), min(likely, affected_ns), affected_ns)


def _on_host(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find short ops on a run without a GPU, where the gaps of Python between them count as well."""
    found = of_host_ops(
        run,
        lambda place: short_ops(place, at["short_host_op_ns"], at["python_between_ops_ns"]),
        at["min_share_of_host_step"],
        at["min_host_ops_per_step"],
    )
    if found is None:
        return
    # By rank: what of the ops and of the Python between them are turns of loops.
    looped = {place.rank: found.of_rank[place.rank].time & op_loops(place).time for place in host_places(run)}
    looped_ns = found.mean_ns_of(looped)
    left_ns = _left_ns(found, looped, at)
    assert isinstance(found.worst, HostPlace)
    turns = op_loops(found.worst).most_turns(looped[found.worst.rank]) if looped_ns > MOST_OF_IT * found.ns else 0
    # A loop that becomes one call goes, but for what is left of it. Of other short ops a compiler fuses a share.
    gone_ns = looped_ns - left_ns
    others = Shares(0.0, at["batchable_share_likely"]).of(found.ns - looped_ns)
    yield Finding(
        rule="small-kernels",
        saving_ns_per_step=Saving(int(gone_ns * CERTAIN_SHARE), others.likely + gone_ns, others.high + looped_ns),
        confidence="medium",
        values={
            "small_per_step": found.per_step,
            **found.time_values("small"),
            "mean_us": us(found.mean_ns),
            "turns": turns,
            "looped_ms": ms(looped_ns),
            "left_ms": ms(left_ns),
            "left_at_most_ms": 0.0,  # of kernels
        },
        evidence=(
            Measure("short ops a step", found.per_step, "count"),
            Measure("their time, with the Python between them", found.ns, "ns"),
            Measure("their own time", found.of_worst.total_ns / found.worst.units, "ns"),
            *((Measure("of their time in loops of the same ops", looped_ns, "ns"),) if turns else ()),
        ),
        situation="host",
        affected_ns=found.ns,
        thread_time=found.thread_time,
    )


def _left_ns(found: TimeOfOps, looped: Mapping[int, Intervals], at: Mapping[str, float]) -> int:
    """Ns a step that stay of loops that become one call: one turn, and what ops compute beyond their dispatch."""

    def of_place(place: Place) -> float:
        assert isinstance(place, HostPlace)
        own = looped[place.rank]
        one = op_loops(place).last_turn_ns(own)
        return min(one + beyond_dispatch_ns(place, own, at["op_dispatch_ns"]), own.total_ns)

    return found.run.mean(of_place)

"""Many kernels that are too small to fill the device; on a run without a GPU, many ops too short for their asking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.host.short_ops import short_ops
from perfdoctor.metrics.kernels.optimizer import in_optimizer
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent, us
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import kernels as kernel_names

#: Families that a compiler fuses with their neighbours; a matmul is not fused away.
_FUSABLE = ("elementwise", "reduction", "normalization", "embedding", "other")


def _small(place: Place, at: Mapping[str, float]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Short, and with fewer blocks than the device has processors where both are known."""
    kernels = place.kernels
    short = kernels.duration_ns < at["short_kernel_ns"]
    blocks, processors = kernels["blocks"], place.info.sm_count
    leaves_room = (blocks < processors) | (blocks <= 0) if processors else np.ones(len(kernels), dtype=bool)
    alone = ~(kernels["is_graph"] != 0) & ~in_optimizer(place) & ~kernels.name.where(_is_of_other_rules)
    small: np.ndarray[tuple[int], np.dtype[np.bool_]] = short & leaves_room & place.kernel_rows(*_FUSABLE) & alone
    return small


def _is_of_other_rules(name: str) -> bool:
    """Fused already, or nothing that a compiler fuses (layout-transposes owns those)."""
    return kernel_names.is_compiled(name) or kernel_names.is_layout_change(name)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Their own running time counts here; the gaps between them are launch-bound's."""
    if host_places(run):
        yield from _on_host(run, at)
        return

    def small_ns(place: Place) -> int:
        return place.alone_ns(_small(place, at))

    share = run.share(small_ns) if run.places else 0.0
    if share < at["min_share_of_step"]:
        return
    total_ns, worst = run.mean(small_ns), run.worst(small_ns)
    rows = _small(worst, at)
    if rows.sum() / worst.units < at["min_kernels_per_step"]:
        return
    yield Finding(
        rule="small-kernels",
        saving_ns_per_step=saving(total_ns, at["fusable_share"] / 2, at["fusable_share"], 0.9),
        confidence="medium" if worst.info.sm_count else "low",
        values={
            "small_per_step": rows.sum() / worst.units,
            "small_ms": ms(total_ns),
            "step_ms": ms(run.step_ns),
            "small_percent": percent(share),
            "mean_us": us(float(worst.kernel_ns[rows].mean()) if rows.any() else 0.0),
        },
        evidence=(
            Measure("small kernels a step", rows.sum() / worst.units, "count"),
            Measure("their time", total_ns, "ns"),
        ),
        work=work_of(run, lambda place: _small(place, at)),
        counted_ns=total_ns,
    )


def _on_host(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Without a GPU nothing runs beside the Python that asks for the ops: the gaps between them count here."""
    found = {place.rank: short_ops(place, at["short_host_op_ns"]) for place in host_places(run)}

    def short_ns(place: Place) -> int:
        return found[place.rank].time.total_ns

    share, worst = run.share(short_ns), run.worst(short_ns)
    ops = found[worst.rank]
    per_step = ops.count / worst.units
    if share < at["min_share_of_host_step"] or per_step < at["min_host_ops_per_step"]:
        return
    total_ns = run.mean(short_ns)
    yield Finding(
        rule="small-kernels",
        saving_ns_per_step=saving(total_ns, at["batchable_share_low"], at["batchable_share_likely"]),
        confidence="medium",
        values={
            "small_per_step": per_step,
            "small_ms": ms(total_ns),
            "step_ms": ms(run.step_ns),
            "small_percent": percent(share),
            "mean_us": us(ops.total_ns / ops.count),
        },
        evidence=(
            Measure("short ops a step", per_step, "count"),
            Measure("their time, with the Python between them", total_ns, "ns"),
            Measure("their own time", ops.total_ns / worst.units, "ns"),
        ),
        situation="host",
        counted_ns=total_ns,
        thread_time={rank: (each.time.starts, each.time.ends) for rank, each in found.items()},
    )

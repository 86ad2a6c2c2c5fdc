"""The optimizer updates one tensor after the other, with several kernels (on a run without a GPU: ops) each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.optimizer import host_updates, in_optimizer, is_fused
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent, us
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES


def _per_tensor(place: Place) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Matrix multiplications of an optimizer (Muon, Shampoo) are its mathematics, and fuse with nothing."""
    return in_optimizer(place) & ~is_fused(place) & ~place.kernel_rows(*MATMUL_FAMILIES)


def _update_ns(place: Place) -> int:
    if isinstance(place, HostPlace):
        return host_updates(place)[0].total_ns
    return place.alone_ns(_per_tensor(place))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Kernels launched inside Optimizer.step that are not multi-tensor or fused ones."""
    if not run.places:
        return
    if host_places(run):
        yield from _on_host(run, at)
        return
    worst = run.worst(_update_ns)
    per_step = int(_per_tensor(worst).sum()) / worst.units
    share = run.share(_update_ns)
    if per_step < at["min_kernels_per_step"] or share < at["min_share_of_step"]:
        return
    update_ns = run.mean(_update_ns)
    yield Finding(
        rule="unfused-optimizer",
        saving_ns_per_step=saving(update_ns, at["recoverable_share_low"], at["recoverable_share_likely"], 0.9),
        confidence="high",
        values={
            "kernels_per_step": per_step,
            "update_ms": ms(update_ns),
            "step_ms": ms(run.step_ns),
            "update_percent": percent(share),
            "mean_us": us(float(worst.kernel_ns[_per_tensor(worst)].mean())),
        },
        evidence=(
            Measure("per-tensor update kernels a step", per_step, "count"),
            Measure("their time", update_ns, "ns"),
        ),
        work=work_of(run, _per_tensor),
        affected_ns=update_ns,
    )


def _on_host(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """The training's thread does the updates itself: each outermost op stands for a kernel, with its Python."""
    worst = max(host_places(run), key=lambda place: place.share(_update_ns(place)))
    pieces, ops = host_updates(worst)
    per_step, share = ops / worst.units, run.share(_update_ns)
    if per_step < at["min_host_ops_per_step"] or share < at["min_share_of_host_step"]:
        return
    update_ns = run.mean(_update_ns)
    yield Finding(
        rule="unfused-optimizer",
        saving_ns_per_step=saving(
            update_ns, at["host_recoverable_share_low"], at["host_recoverable_share_likely"], 0.9
        ),
        confidence="medium",
        values={
            "kernels_per_step": per_step,
            "update_ms": ms(update_ns),
            "step_ms": ms(run.step_ns),
            "update_percent": percent(share),
            "mean_us": us(pieces.total_ns / ops),
        },
        evidence=(
            Measure("per-tensor ops a step inside the optimizer", per_step, "count"),
            Measure("their time, with the Python around them", update_ns, "ns"),
        ),
        situation="host",
        affected_ns=update_ns,
        thread_time={
            place.rank: (found.starts, found.ends)
            for place, (found, _) in ((each, host_updates(each)) for each in host_places(run))
        },
    )

"""The optimizer updates one tensor after the other, with several kernels (on a run without a GPU: ops) each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.of_host import of_host_ops
from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import Shares, saving_in_cases, shares
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.kernels.fused_update import FusedUpdate, fused_update
from perfdoctor.metrics.kernels.host_update import HostUpdate, host_update
from perfdoctor.metrics.kernels.optimizer import fusible, host_updates, is_fused
from perfdoctor.metrics.units import ms, us
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import CASES, Saving
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES


def _per_tensor(place: Place) -> Mask:
    """One bool a kernel: does it update one tensor? Matrix products (Muon, Shampoo) fuse with nothing."""
    return fusible(place) & ~is_fused(place) & ~place.kernel_rows(*MATMUL_FAMILIES)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find kernels launched inside Optimizer.step that are not multi-tensor or fused ones."""
    if host_places(run):
        yield from _on_host(run, at)
        return
    found = of_kernels(run, _per_tensor, at["min_share_of_step"])
    if found is None:
        return

    def saved_ns(place: Place, case: str) -> float:
        """Ns of the window that the kernels take beyond one update of all tensors."""
        rows = _per_tensor(place)
        summed = float(place.kernel_ns[rows].sum())
        return max(1 - _update(place, case, at).ns / summed, 0.0) * place.alone_ns(rows) if summed else 0.0

    saving = saving_in_cases(run, saved_ns)
    if saving.likely < at["min_saved_share"] * run.step_ns:
        return
    launches = _update(found.worst, "likely", at).launches
    yield found.finding(
        rule="unfused-optimizer",
        saving=saving,
        confidence="high",
        values={
            "kernels_per_step": found.per_step,
            **found.time_values("update"),
            "passing_ms": 0.0,  # of ops
            "passes": 0.0,
            "fused_passes": 0.0,
            "mean_us": us(float(found.worst.kernel_ns[found.worst_rows].mean())),
            "fused_ms": ms(found.ns - saving.likely),
            "fused_at_most_ms": ms(found.ns - saving.low),
            "fused_at_least_ms": ms(found.ns - saving.high),
        },
        evidence=(
            Measure("per-tensor update kernels a step", found.per_step, "count"),
            Measure("their time", found.ns, "ns"),
            Measure("one update of all tensors instead", found.ns - saving.likely, "ns"),
            Measure("launches of that a step", launches, "count"),
        ),
    )


def _update(place: Place, case: str, at: Mapping[str, float]) -> FusedUpdate:
    return fused_update(place, _per_tensor(place), case, at["kernel_floor_ns"], at["short_kernel_ns"])


def _on_host(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find updates by the training thread itself: each outermost op, with its Python, stands for a kernel."""
    found = of_host_ops(run, host_updates, at["min_share_of_host_step"], 1)
    if found is None:
        return
    least_left = 1 - at["host_recoverable_share_high"]
    of_rank = {place.rank: host_update(place, at["op_dispatch_ns"], least_left) for place in host_places(run)}
    worst = of_rank[found.worst.rank]
    likely, high = at["multi_tensor_share_likely"], at["multi_tensor_share_high"]
    calls = shares(at, "host_recoverable_share") if worst.fuses else Shares(0.0, likely, high)
    passing_ns = run.mean(lambda place: of_rank[place.rank].passing_ns)

    def left_ns(case: str) -> int:
        return run.mean(lambda place: of_rank[place.rank].left_ns(case))

    left = {case: left_ns(case) for case in CASES}
    of_calls = calls.of(found.ns - passing_ns)
    saving = Saving(
        of_calls.low + passing_ns - left["low"],
        of_calls.likely + passing_ns - left["likely"],
        of_calls.high + passing_ns - left["high"],
    )
    if saving.likely < at["min_saved_share"] * run.step_ns:
        return
    is_large = worst.fuses and passing_ns > MOST_OF_IT * found.ns
    yield Finding(
        rule="unfused-optimizer",
        saving_ns_per_step=saving,
        confidence="medium",
        values={
            "kernels_per_step": found.per_step,
            **found.time_values("update"),
            "mean_us": us(found.mean_ns),
            "passing_ms": ms(passing_ns),
            "passes": worst.passes,
            "fused_passes": worst.fused_passes,
            "fused_ms": ms(left["likely"]),
            "fused_at_most_ms": ms(left["low"]),
            "fused_at_least_ms": ms(left["high"]),
        },
        evidence=(
            Measure("per-tensor ops a step inside the optimizer", found.per_step, "count"),
            Measure("their time, with the Python around them", found.ns, "ns"),
            *_byte_measures(worst, passing_ns, left["likely"]),
        ),
        situation="host-large" if is_large else "host" if worst.fuses else "host-multi-tensor",
        affected_ns=found.ns,
        thread_time=found.thread_time,
    )


def _byte_measures(update: HostUpdate, passing_ns: float, left_ns: float) -> Iterator[Measure]:
    """What of the update grows with its bytes, as far as shapes show it."""
    yield Measure("of it in ops beyond the time of a call", passing_ns, "ns")
    if update.passes:
        yield Measure("bytes of the parameters that a step updates", update.parameter_bytes, "bytes")
        yield Measure("passes over them", update.passes, "count")
        yield Measure("passes of the fused update", update.fused_passes, "count")
        yield Measure("rate that the update's own ops reached", update.bytes_per_second, "bytes_per_second")
        yield Measure("the fused update at that rate", left_ns, "ns")

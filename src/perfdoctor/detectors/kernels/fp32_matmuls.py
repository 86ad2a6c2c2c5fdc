"""Matrix multiplications, convolutions and attention that read 32- or 64-bit numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.finding_rows import largest, work_of
from perfdoctor.metrics.kernels.profiles import tensor_evidence
from perfdoctor.metrics.units import ms, percent
from perfdoctor.metrics.work.autocast import Autocast, autocast
from perfdoctor.metrics.work.device_peaks import generation_of, peaks
from perfdoctor.metrics.work.half_precision import ReachedRates, half_rate, memory_rate, tf32_products, wide_products
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, KernelChanges, Measure
from perfdoctor.records.savings import CASES, Saving


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find them by their kernels' names: what a name does not prove is not counted. A measurement proves TF32, too."""
    if not any(wide_products(place).any() for place in run.places):
        return
    if any(known is not None and not known.tensor_cores for known in map(generation_of, run.places)):
        return  # products of 16 bits take as long there, or longer: fp16 at 1/64 of the rate on a GTX 1080 Ti
    under = {
        place.rank_and_device: [autocast(place, _reached(at, case), case) for case in CASES] for place in run.places
    }
    changes = {place.rank_and_device: _changes(place, under[place.rank_and_device]) for place in run.places}
    low, likely, high = (
        run.mean(lambda place, case=case: _saved_ns(place, changes[place.rank_and_device], case))  # type: ignore[misc]
        for case in range(len(CASES))
    )
    if likely < at["min_share_of_step"] * run.step_ns:
        return
    wide_ns, worst = run.mean(_wide_ns), run.worst(_wide_ns)
    tf32_ns, casting = int(worst.kernel_ns[tf32_products(worst)].sum()), under[worst.rank_and_device][1]
    affected_ns = run.mean(lambda place: _affected_ns(place, changes[place.rank_and_device]))
    usual = _reached(at, "likely")
    is_known = bool(half_rate(worst, usual))  # else its rates are those of any other GPU
    yield Finding(
        rule="fp32-matmuls",
        saving_ns_per_step=Saving(max(min(low, likely), 0), likely, max(likely, high)),
        confidence="medium" if is_known else "low",
        values={
            "matmul_ms": ms(wide_ns),
            "step_ms": ms(run.step_ns),
            "matmul_percent": percent(wide_ns / run.step_ns),
            "tf32_percent": percent(tf32_ns / max(_summed_ns(worst), 1)),
            "casts": float(casting.casts.sum()) / worst.units,
            "cast_ms": ms(float(casting.host_ns.sum()) / worst.units),
            "changed_ms": ms(affected_ns),
            "half_tflop_per_second": half_rate(worst, usual) / usual.half / 1e12,
            "memory_gb_per_second": memory_rate(worst, usual.memory) / usual.memory / 1e9,
        },
        evidence=(
            Measure("kernels that read 32 or 64 bits", wide_ns, "ns"),
            *tensor_evidence(worst, wide_products(worst)),
            largest(worst, wide_products(worst), "Largest of them, a step"),
        ),
        situation=_situation(worst, tf32_ns),
        work=work_of(run, wide_products),
        affected_ns=affected_ns,
        changes=changes,
        if_longer="host-limited",
        formula="" if is_known else "unknown-gpu",
    )


def _reached(at: Mapping[str, float], case: str) -> ReachedRates:
    half = at[f"half_rate_share_{case}"]
    return ReachedRates(
        half=half,
        tf32=min(half * at[f"tf32_nearer_to_peak_{case}"], 1.0),
        wide=at[f"fp32_rate_share_{case}"],
        memory=at["memory_rate_share"],
        memory_of_products=at[f"matmul_memory_share_{case}"],
        of_measured=half / at["half_rate_share_likely"],
    )


def _changes(place: Place, cases: list[Autocast]) -> KernelChanges:
    """What autocast changes of each kernel. `cases`: at least, likely and at most."""
    ns = np.maximum(place.kernel_ns, 1)
    shorter = np.stack([(place.kernel_ns - case.ns) / ns for case in cases])
    return KernelChanges(shorter, np.stack([case.host_ns for case in cases]))


def _saved_ns(place: Place, changes: KernelChanges, case: int) -> float:
    """Ns of the window that the kernels take less."""
    return float((changes.shorter[case] * place.kernel_ns).sum()) * _beside(place)


def _affected_ns(place: Place, changes: KernelChanges) -> float:
    """Ns of the window in kernels that change."""
    return float(place.kernel_ns[(changes.shorter != 0).any(axis=0)].sum()) * _beside(place)


def _beside(place: Place) -> float:
    """Kernels that overlap others save less than they last: what of their sum the device really computes."""
    summed = int(place.kernel_ns.sum())
    return min(place.compute.total_ns / summed, 1.0) if summed else 0.0


def _wide_ns(place: Place) -> int:
    """How long any of them ran; the sum of their own times may exceed the step where streams overlap."""
    wide = wide_products(place)
    return (Intervals.of(place.kernels.start_ns[wide], place.kernels.end_ns[wide]) & place.window).total_ns


def _summed_ns(place: Place) -> int:
    return int(place.kernel_ns[wide_products(place)].sum())


def _situation(place: Place, tf32_ns: int) -> str:
    """tf32, fp32, or fp32-before-ampere where the GPU is known to take float16, and neither TF32 nor bfloat16."""
    if 2 * tf32_ns > _summed_ns(place):
        return "tf32"
    known = peaks(place)
    takes = known.matmul_flop_per_second if known else None
    if takes and takes("fp16"):
        return "fp32" if takes("bf16") or takes("tf32") else "fp32-before-ampere"
    built = generation_of(place)
    return "fp32-before-ampere" if built and built.is_before_ampere else "fp32"

"""Matrix multiplications, convolutions and attention that read 32- or 64-bit numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.hardware.peaks import Peaks
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.profiles import on_tensor_cores, tensor_evidence
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.units import ms, percent
from perfdoctor.metrics.work import roofline
from perfdoctor.metrics.work.device_peaks import attained, peaks
from perfdoctor.metrics.work.half_speedup import half_speedup
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, Mask
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names


def _rows(place: Place, input_type: str) -> Mask:
    return place.kernels.name.has(_matrix_type, input_type) & place.kernel_rows(*MATMUL_FAMILIES)


def _matrix_type(name: str) -> str:
    """What it reads. A product with a vector, or a channel by itself, gains nothing from tensor cores: "" for those."""
    is_other = kernel_names.is_vector_product(name) or kernel_names.is_depthwise(name)
    return "" if is_other else kernel_names.input_type(name)


@once_per_place
def _wide(place: Place) -> Mask:
    wide: Mask = _rows(place, "fp32") | _rows(place, "fp64") | _rows(place, "tf32")
    return wide


def _tf32(place: Place) -> Mask:
    """By name; and what reads 32 bits by its name where tensor cores were seen at work: they take no plain fp32."""
    return _rows(place, "tf32") | (_rows(place, "fp32") & on_tensor_cores(place))


def _wide_ns(place: Place) -> int:
    """How long any of them ran; the sum of their own times may exceed the step where streams overlap."""
    wide = _wide(place)
    return (Intervals.of(place.kernels.start_ns[wide], place.kernels.end_ns[wide]) & place.window).total_ns


def _summed_ns(place: Place) -> int:
    return int(place.kernel_ns[_wide(place)].sum())


@once_per_place
def _least_ns(place: Place, level: str) -> Floats:
    """What each kernel takes at least in 16 bits, by its FLOP and bytes on this GPU; 0 where they are not known."""
    return roofline.least_ns(place, in_half=True, at_best=level == "high")


def _limits(known: Peaks | None) -> tuple[float, float]:
    """How many times as fast 16 bits can be at most, from TF32 and from plain fp32, by these peaks."""
    if known is None or not known.half_flop_per_second:
        return np.inf, np.inf
    half, tf32, fp32 = known.half_flop_per_second, known.tf32_flop_per_second, known.fp32_flop_per_second
    return half / tf32 if tf32 else np.inf, half / fp32 if fp32 else np.inf


def _gains(place: Place, at: Mapping[str, float], level: str) -> Floats:
    """How many times as fast each kernel gets: as measured on this machine for its size, where that is known.

    Else as assumed: tf32 on matrix units gains little, plain fp32 much; never more than peaks allow.
    """
    limits = _limits(attained(place))
    if level == "high":
        limits = tuple(map(max, limits, _limits(peaks(place))))  # type: ignore[assignment]
    gains = (min(at[f"tf32_to_half_speedup_{level}"], limits[0]), min(at[f"fp32_to_half_speedup_{level}"], limits[1]))
    assumed, known = np.where(_tf32(place), *gains), half_speedup(place)
    both = {"low": np.fmin(assumed, known), "high": np.fmax(assumed, known)}
    found: Floats = both.get(level, np.where(np.isnan(known), assumed, known))
    return found


def _saved_ns(place: Place, at: Mapping[str, float], level: str) -> float:
    """Fewer ns for the window.

    No kernel gets faster than its FLOP and its bytes, in 16 bits, allow on this GPU, where they are known.
    """
    wide = _wide(place)
    ns, gain = place.kernel_ns[wide], _gains(place, at, level)[wide]
    return float(np.maximum(ns - np.maximum(ns / gain, _least_ns(place, level)[wide]), 0).sum()) * _beside(place)


def _beside(place: Place) -> float:
    """Kernels that overlap others save less than they last: what of their sum the device really computes."""
    summed = int(place.kernel_ns.sum())
    return min(place.compute.total_ns / summed, 1.0) if summed else 0.0


def _counted_ns(place: Place) -> float:
    return _summed_ns(place) * _beside(place)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """By kernel name: what a name does not prove is not counted. Whether it is TF32, a measurement proves as well."""

    def saved(level: str) -> int:
        return run.mean(lambda place: _saved_ns(place, at, level) if _summed_ns(place) else 0)

    likely = saved("likely")
    if likely < at["min_share_of_step"] * run.step_ns:
        return
    wide_ns, worst = run.mean(_wide_ns), run.worst(_wide_ns)
    tf32_ns = int(worst.kernel_ns[_tf32(worst)].sum())
    yield Finding(
        rule="fp32-matmuls",
        saving_ns_per_step=Saving(saved("low"), likely, saved("high")),
        confidence="medium",
        values={
            "matmul_ms": ms(wide_ns),
            "step_ms": ms(run.step_ns),
            "matmul_percent": percent(wide_ns / run.step_ns),
            "tf32_percent": percent(tf32_ns / max(_summed_ns(worst), 1)),
        },
        evidence=(
            Measure("kernels that read 32 or 64 bits", wide_ns, "ns"),
            *tensor_evidence(worst, _wide(worst)),
            largest(worst, _wide(worst), "Largest of them, a step"),
        ),
        situation=_situation(worst, tf32_ns),
        work=work_of(run, _wide),
        affected_ns=run.mean(_counted_ns),
    )


def _situation(place: Place, tf32_ns: int) -> str:
    """tf32, fp32, or fp32-before-ampere where the GPU is known to take float16, and neither TF32 nor bfloat16."""
    if 2 * tf32_ns > _summed_ns(place):
        return "tf32"
    known = peaks(place)
    takes = known.matmul_flop_per_second if known else None
    return "fp32-before-ampere" if takes and takes("fp16") and not (takes("bf16") or takes("tf32")) else "fp32"

"""Convolutions of one channel each, which compute on no tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.metrics.finding_rows import largest
from perfdoctor.metrics.units import ms
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names import kernels as kernel_names


def _depthwise(place: Place) -> Mask:
    return place.kernels.name.where(kernel_names.is_depthwise) & place.kernel_rows("convolution")


def _on_32_bits(place: Place) -> Mask:
    wide = place.kernels.name.has(kernel_names.input_type, "fp32")
    return _depthwise(place) & wide


def _weights_ns(place: Place) -> float:
    """Ns of the fp32 ones that sum a gradient of weights, less what runs beside other kernels."""
    rows, ns = _on_32_bits(place), place.kernel_ns
    sums = rows & place.kernels.name.matches(kernel_names.GRID_OF_WEIGHTS)
    return float(ns[sums].sum() / max(ns[rows].sum(), 1)) * place.alone_ns(rows)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find depthwise convolutions; on 32-bit numbers half of the bytes can go, on 16 bits nothing."""
    found = of_kernels(run, _depthwise, at["min_share_of_step"])
    wide = of_kernels(run, _on_32_bits)
    if found is None or wide is None:
        return
    weights_ns = run.mean(_weights_ns)

    def saved(case: str) -> int:
        """Ns a step that half of the bytes save, less of kernels that sum than of those over activations."""
        activations = at[f"of_activations_share_{case}"] * (wide.ns - weights_ns)
        return int(activations + at[f"of_weights_share_{case}"] * weights_ns)

    yield wide.finding(
        rule="depthwise-convolutions",
        saving=Saving(saved("low"), saved("likely"), saved("high")),
        confidence="medium",
        values={**found.kernel_values(), "wide_ms": ms(wide.ns), "weights_ms": ms(weights_ns)},
        evidence=(
            Measure("their time", found.ns, "ns"),
            Measure("of it on 32-bit numbers", wide.ns, "ns"),
            largest(found.worst, found.worst_rows, "Largest of them, a step"),
        ),
        situation="fp32" if wide.ns else "half",
    )

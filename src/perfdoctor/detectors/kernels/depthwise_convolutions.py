"""Convolutions of each channel by itself take much of the step: no tensor core works on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.savings import shares
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.units import ms
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import kernels as kernel_names


def _depthwise(place: Place) -> Mask:
    return place.kernels.name.where(kernel_names.is_depthwise) & place.kernel_rows("convolution")


def _on_32_bits(place: Place) -> Mask:
    wide = place.kernels.name.has(kernel_names.input_type, "fp32")
    rows: Mask = _depthwise(place) & wide
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """What they gain is half of the bytes; on 16 bits already, knowing it is all there is."""
    found = of_kernels(run, _depthwise, at["min_share_of_step"])
    wide = of_kernels(run, _on_32_bits)
    if found is None or wide is None:
        return
    yield wide.finding(
        rule="depthwise-convolutions",
        saving=shares(at, "avoidable_share").of(wide.ns),
        confidence="medium",
        values={**found.kernel_values(), "wide_ms": ms(wide.ns)},
        evidence=(
            Measure("their time", found.ns, "ns"),
            Measure("of it on 32-bit numbers", wide.ns, "ns"),
            largest(found.worst, found.worst_rows, "Largest of them, a step"),
        ),
        situation="fp32" if wide.ns else "half",
    )

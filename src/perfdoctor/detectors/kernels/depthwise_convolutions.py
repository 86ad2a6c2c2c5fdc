"""Convolutions of each channel by itself take much of the step: no tensor core works on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
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

    def total_ns(place: Place) -> int:
        return place.alone_ns(_depthwise(place))

    if not run.places or run.share(total_ns) < at["min_share_of_step"]:
        return
    total, worst = run.mean(total_ns), run.worst(total_ns)
    wide_ns = run.mean(lambda place: place.alone_ns(_on_32_bits(place)))
    rows = _depthwise(worst)
    yield Finding(
        rule="depthwise-convolutions",
        saving_ns_per_step=saving(
            wide_ns, at["avoidable_share_low"], at["avoidable_share_likely"], at["avoidable_share_high"]
        ),
        confidence="medium",
        values={
            "kernels_per_step": rows.sum() / worst.units,
            "kernels_ms": ms(total),
            "step_ms": ms(run.step_ns),
            "kernels_percent": percent(run.share(total_ns)),
        },
        evidence=(
            Measure("their time", total, "ns"),
            Measure("of it on 32-bit numbers", wide_ns, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        situation="fp32" if wide_ns else "half",
        work=work_of(run, _on_32_bits),
        counted_ns=wide_ns,
    )

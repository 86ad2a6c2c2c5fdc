"""Gradients are filled with zeros at every step, instead of being let go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.affected import MOST_OF_IT, affected
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.copies.transfers import copies_of, exposed_ns
from perfdoctor.metrics.finding_rows import kernels_and_copies, work_of
from perfdoctor.metrics.kernels.optimizer import added_to_gradients, filled_by_zero_grad
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure


def _memsets(place: Place) -> Mask:
    return copies_of(place, "memset") & filled_by_zero_grad(launches_of(place, "copies"))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find fills by zero_grad; short kernels belong to small-kernels, the gaps between them to launch-bound."""

    @once_per_place
    def parts_ns(place: Place) -> tuple[float, float]:
        return _parts_ns(place, at)

    found = affected(run, lambda place: sum(parts_ns(place)), at["min_share_of_step"])
    if found is None:
        return

    def rows(place: Place) -> Mask:
        return kernels_and_copies(place, _fills(place, at) | _additions(place, at), _memsets(place))

    worst = found.worst
    adding = run.mean(lambda place: parts_ns(place)[1])
    count = int(filled_by_zero_grad(launches_of(worst, "kernels")).sum()) + int(_memsets(worst).sum())
    mostly_memsets = exposed_ns(worst, _memsets(worst)) > MOST_OF_IT * sum(parts_ns(worst))
    yield Finding(
        rule="zero-grad-fills",
        saving_ns_per_step=shares(at, "avoidable_share").of(found.ns),
        confidence="high",
        values={
            "fills_per_step": count / worst.units,
            "filling_ms": ms(found.ns),
            "adding_ms": ms(adding),
            "step_ms": ms(run.step_ns),
            "filling_percent": percent(found.share),
        },
        evidence=(
            Measure("kernels and memsets launched in zero_grad, a step", count / worst.units, "count"),
            Measure("their time in which nothing else ran", found.ns - adding, "ns"),
            Measure("time of adding to what they filled", adding, "ns"),
        ),
        symptom_of=("exposed-copies",) if mostly_memsets else (),
        work=work_of(run, rows),
        affected_ns=run.mean(lambda place: _filling_ns(place, at) + place.alone_ns(_additions(place, at))),
    )


def _parts_ns(place: Place, at: Mapping[str, float]) -> tuple[float, float]:
    """Ns of filling, and of adding to it: once for each fill, as micro-batches would add up in any case."""
    filling = _filling_ns(place, at)
    return filling, min(place.alone_ns(_additions(place, at)), at["passes_of_an_addition"] * filling) if filling else 0


def _filling_ns(place: Place, at: Mapping[str, float]) -> int:
    return place.alone_ns(_fills(place, at)) + exposed_ns(place, _memsets(place))


def _fills(place: Place, at: Mapping[str, float]) -> Mask:
    long: Mask = place.kernels.duration_ns >= at["short_kernel_ns"]
    return long & filled_by_zero_grad(launches_of(place, "kernels"))


def _additions(place: Place, at: Mapping[str, float]) -> Mask:
    return added_to_gradients(place) & (place.kernels.duration_ns >= at["short_kernel_ns"])

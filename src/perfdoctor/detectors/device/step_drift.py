"""The steps become longer and longer in the course of the recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.accounting.outliers import OWNERS, drift, own_durations, step_parts
from perfdoctor.metrics.machine.gpu_samples import sampled
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def _rise(place: Place) -> float:
    """The rise from the first of the steps used to the last, as a share of their mean."""
    steps = place.steps.used
    return drift(own_durations(step_parts(place))).ns_per_step * (steps - 1) * place.units / max(place.window_ns, 1)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find steps that grow; they go on growing after the recording, so no saving per step is known."""
    places = [place for place in run.places if place.steps.used >= at["min_steps"] and place.steps.confidence != "low"]
    if not places:
        return
    place = max(places, key=_rise)
    parts = step_parts(place)
    durations = own_durations(parts)
    whole = drift(durations)
    rise = _rise(place)
    if rise < at["min_rise"] or whole.rising_share < at["min_rising_share"]:
        return
    part = max(OWNERS, key=lambda name: drift(parts[name]).ns_per_step)
    of_part = drift(parts[part]).ns_per_step
    yield Finding(
        rule="step-drift",
        saving_ns_per_step=NO_SAVING,
        confidence="medium",
        values={
            "rise_percent": percent(rise),
            "steps_seen": place.steps.used,
            "rise_ms": ms(whole.ns_per_step),
            "cause": part.replace("_", " "),
        },
        evidence=(
            Measure(f"usual rise from step to step on rank {place.rank}", whole.ns_per_step, "ns"),
            Measure("of it in the part that rises most", of_part, "ns"),
            Measure("pairs of steps of which the later is longer", whole.rising_share, "share"),
            Measure("first step used", int(durations[0]), "ns"),
            Measure("last step used", int(durations[-1]), "ns"),
            *sampled(run),
        ),
    )

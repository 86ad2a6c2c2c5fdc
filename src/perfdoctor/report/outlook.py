"""What do several fixes bring together, and what each on the way there? A prediction in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfdoctor.report import wording
from perfdoctor.report.foreign_text import clean

if TYPE_CHECKING:
    from perfdoctor.findings import Diagnosis, PredictedStep, Prediction

_NAME_LIMIT = 32
_KINDS = {"host": "the host's work", "latency": "starting work and waking up", "input_wait": "the next batch"}


@dataclass(frozen=True)
class Stop:
    """One line of the way: what was fixed, and the step behind it and before it, in ns."""

    name: str
    step_ns: int
    before_ns: int


def together(diagnosis: Diagnosis) -> str:
    """What several fixes bring at once, or those asked for; "" where the verdict says the same."""
    prediction = _worth_showing(diagnosis)
    if prediction is None:
        return ""
    low, likely, high = (wording.duration(ns) for ns in prediction.step_ns)
    about = likely if low == high else f"{likely} ({low} to {high})"
    fixed = ", ".join(_name(step) for step in prediction.steps)
    took, times = wording.duration(prediction.recorded_ns), wording.speedup(prediction.speedup)
    if prediction.replay_error is None:
        return f"With {fixed} fixed, the step takes about {about} instead of {took}: {times}."
    return f"Played again with {fixed} fixed, the step takes about {about} instead of {took}: {times}."


def way(diagnosis: Diagnosis) -> tuple[Stop, ...]:
    """From the recorded step to the predicted one, fix by fix; () where `together` says nothing."""
    prediction = _worth_showing(diagnosis)
    if prediction is None:
        return ()
    stops = [Stop("as recorded", prediction.recorded_ns, prediction.recorded_ns)]
    for step in prediction.steps:
        stops.append(Stop(_name(step), step.step_ns, stops[-1].step_ns))
    return tuple(stops)


def hangs_on(diagnosis: Diagnosis) -> str:
    """What the length of the step hangs on, the largest share first; "" where that was not played."""
    path = diagnosis.critical_path
    if path is None:
        return ""
    shares = sorted(path.share.items(), key=lambda item: -item[1])
    named = [
        f"{_KINDS.get(kind, kind.replace('_', ' '))} {wording.share(part)}" for kind, part in shares if part >= 0.01
    ]
    return f"The length of the step hangs on: {', '.join(named)}."


def heading(diagnosis: Diagnosis) -> str:
    asked = diagnosis.prediction is not None and diagnosis.prediction.asked
    return "What if: fixed one after the other" if asked else "Fixed one after the other"


def won(stop: Stop) -> str:
    """`−107 ms`; "" where nothing is won."""
    return f"−{wording.duration(stop.before_ns - stop.step_ns)}" if stop.step_ns < stop.before_ns else ""


def _worth_showing(diagnosis: Diagnosis) -> Prediction | None:
    """Of one finding the verdict says the same, if nobody asked."""
    prediction = diagnosis.prediction
    return prediction if prediction is not None and (prediction.asked or len(prediction.steps) > 1) else None


def _name(step: PredictedStep) -> str:
    """The rule whose finding is fixed, and how far if somebody asked for that: `launch-bound=50%`."""
    return clean(step.rule, _NAME_LIMIT) + (f"={clean(step.choice, _NAME_LIMIT)}" if step.choice else "")

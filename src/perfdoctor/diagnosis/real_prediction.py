"""How long is a predicted step when nobody records? Replays are of recorded time; what a fix saves is in real time."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from perfdoctor.metrics.accounting.real_time import real_step_ns
from perfdoctor.model.run import Run
from perfdoctor.records.predictions import PredictedStep, Prediction
from perfdoctor.records.savings import Range


def in_real_time(prediction: Prediction, shares: Mapping[str, float], run: Run) -> Prediction:
    """The same prediction from the unrecorded step on; itself where that is not known, or no other.

    `shares`: by rule, how much of what its finding is about is there without a recorder. Another size of the run
    changes all parts of the step alike.
    """
    now_ns, recorded_ns = real_step_ns(run), prediction.recorded_ns
    if now_ns == recorded_ns:
        return prediction
    whole = now_ns / recorded_ns
    way, before_ns, real_ns = [], recorded_ns, float(now_ns)
    for step in prediction.steps:
        real_ns = max(real_ns - (before_ns - step.step_ns) * shares.get(step.rule, whole), 1.0)
        before_ns = step.step_ns
        way.append(PredictedStep(step.rule, round(real_ns), step.choice, step.samples))
    likely_ns = prediction.step_ns[1]
    by = (now_ns - real_ns) / (recorded_ns - likely_ns) if recorded_ns != likely_ns else whole
    low, high = (
        max(round(now_ns - (recorded_ns - ns) * by), 1) for ns in (prediction.step_ns[0], prediction.step_ns[2])
    )
    step_ns = Range(min(low, round(real_ns)), round(real_ns), max(high, round(real_ns)))
    times = Range(*(now_ns * prediction.samples / ns for ns in reversed([*step_ns])))
    return replace(prediction, step_ns=step_ns, speedup=times, steps=tuple(way), unrecorded_ns=now_ns)

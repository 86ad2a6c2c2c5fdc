"""How wide is the range of a predicted step? At least as wide as those of the savings that lead there."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.records.predictions import Prediction
from perfdoctor.records.savings import Range


def in_calibrated_range(prediction: Prediction, savings: Sequence[PredictedSaving]) -> Prediction:
    """The prediction with its range widened to that of `savings`, each weighted by what it is likely to save."""
    found = [saving.ns for saving in savings]
    likely_ns = sum(ns.likely for ns in found)
    if not likely_ns:
        return prediction
    now_ns, saved_ns = prediction.now_ns, prediction.now_ns - prediction.step_ns[1]
    least_ns, most_ns = (
        saved_ns * sum(case) / likely_ns for case in zip(*((ns.low, ns.high) for ns in found), strict=True)
    )
    best_ns = max(min(prediction.step_ns[0], round(now_ns - most_ns)), 1)
    worst_ns = max(prediction.step_ns[2], min(round(now_ns - least_ns), now_ns))
    step_ns = Range(best_ns, prediction.step_ns.likely, worst_ns)
    return replace(prediction, step_ns=step_ns, speedup=Range(*(now_ns / ns for ns in reversed([*step_ns]))))

"""What are the types in signatures and fields called that have no class of their own? For annotations alone.

`from perfdoctor.aliases import Confidence, Ints`. Public as `perfdoctor.api` is.
"""

from __future__ import annotations

from perfdoctor.api import AnyRun
from perfdoctor.api.arguments import AnyPath, AnyQuestions, AnySteps, AnyThresholds, Progress
from perfdoctor.comparison.records import Fate, FindingFate, Verdict
from perfdoctor.model.columns import Column, Floats, Ints, Mask
from perfdoctor.model.steps import Confidence, FoundBy
from perfdoctor.records.findings import Evidence, Status, Value
from perfdoctor.records.savings import Amount

__all__ = [
    "Amount", "AnyPath", "AnyQuestions", "AnyRun", "AnySteps", "AnyThresholds", "Column", "Confidence", "Evidence",
    "Fate", "FindingFate", "Floats", "FoundBy", "Ints", "Mask", "Progress", "Status", "Value", "Verdict",
]  # fmt: skip

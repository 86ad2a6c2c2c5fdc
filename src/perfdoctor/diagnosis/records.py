"""What does an examination hand on: the diagnosis that reports show, and the findings behind it, which exports show?"""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.rulebook import Rule


class Found(Struct, frozen=True):
    """What one rule found, and by how much its fix shortens the step."""

    rule: Rule
    finding: Finding
    saving: PredictedSaving


class Examination(Struct, frozen=True):
    """`found`: in the order of the rules. A finding names rows of the run's places; the diagnosis holds no rows."""

    run: Run
    diagnosis: Diagnosis
    found: tuple[Found, ...]

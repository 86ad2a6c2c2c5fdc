"""What does an examination hand on: the diagnosis that reports show, and the findings behind it, which exports show?"""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.model.run import Run
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.rulebook import Rule, RuleFix


class Advisable(Struct, frozen=True):
    """`fixes`: those that are of use here, each with what it needs or was seen to do ("" for nothing).

    `left_out`: those that fit the finding and are of no use here, each with the reason.
    """

    fixes: tuple[tuple[RuleFix, str], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def is_in_vain(self) -> bool:
        """Is there nothing left of what is known to help?"""
        return bool(self.left_out) and not self.fixes


class Found(Struct, frozen=True):
    """What one rule found, by how much its fix shortens the step, and which fixes are of use here (None: not asked)."""

    rule: Rule
    finding: Finding
    saving: PredictedSaving
    advisable: Advisable | None = None


class Examination(Struct, frozen=True):
    """`found`: in the order of the rules. A finding names rows of the run's places; the diagnosis holds no rows."""

    run: Run
    diagnosis: Diagnosis
    found: tuple[Found, ...]

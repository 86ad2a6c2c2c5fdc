"""What do the tables hold that follow from the diagnosis: findings, their fixes, and what became of each rule?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfdoctor.model.columns import UNKNOWN
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, with_symptoms

#: Ids of findings are their places in reports.
FIRST_ID = 1


def findings(diagnosis: Diagnosis) -> Iterator[Sequence[object]]:
    """A row for each finding, symptoms behind their cause."""
    cause_of = {id(symptom): number for number, advice in _numbered(diagnosis) for symptom in advice.symptoms}
    for _, advice in _numbered(diagnosis):
        saving = advice.saving_ns_per_step
        yield (
            advice.rule, advice.title, advice.summary, advice.category, advice.confidence, saving.low, saving.likely,
            saving.high, *advice.speedup, cause_of.get(id(advice), UNKNOWN),
        )  # fmt: skip


def fixes(diagnosis: Diagnosis) -> Iterator[Sequence[object]]:
    """A row for each fix of each finding."""
    for number, advice in _numbered(diagnosis):
        for fix in advice.fixes:
            yield number, fix.title, fix.how, fix.effort, fix.changes_numerics


def outcomes(diagnosis: Diagnosis) -> Iterator[Sequence[object]]:
    """A row for each rule."""
    return ((each.rule, each.status, ", ".join(each.missing)) for each in diagnosis.outcomes)


def _numbered(diagnosis: Diagnosis) -> Iterator[tuple[int, Advice]]:
    return enumerate(with_symptoms(diagnosis.findings), FIRST_ID)

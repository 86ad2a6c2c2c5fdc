"""What does a diagnosis say where its fixes were tried on this kind of machine before?

A prediction rests on trainings that others measured (diagnosis/calibration.py). Trials here of the fix that it is made
for are nearer: its range is widened to hold what they saved. From nine on it goes from the least to the greatest of
them, which hold the next one in 80 of 100 cases, as a range is to do, and to the likely value, which stays what was
predicted: later trials are held against that. Trials of what the advice does not begin with say nothing of it. A fix
that was measured to hurt this project is no longer advised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perfdoctor.history.promises import EDIT, in_words
from perfdoctor.patterns import regex
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, Fix, with_symptoms
from perfdoctor.records.savings import Range, Saving

#: Of n trials so many at each end are left out, so that the rest hold the next one in 80 of 100 cases.
_TAIL = 0.1
_FEWEST = 9
_Row = Mapping[str, Any]


def as_measured(diagnosis: Diagnosis, rows: Sequence[_Row], advised_by: Mapping[str, str]) -> Diagnosis:
    """The diagnosis with what `rows` say, newest first, all of this kind of machine.

    `advised_by`: by the name of a fix, a pattern that is found in the code of advice to make it.
    """
    by_rule: dict[str, list[_Row]] = {}
    for row in rows:
        by_rule.setdefault(row["rule"] or "", []).append(row)
    if not any(each.rule in by_rule for each in with_symptoms(diagnosis.findings)):
        return diagnosis

    def measured(advice: Advice) -> Advice:
        of_rule = by_rule.get(advice.rule, ())
        harmless = replace(_without_harm(advice, of_rule, advised_by), symptoms=tuple(map(measured, advice.symptoms)))
        return _measured(harmless, _of_first_fix(harmless, of_rule, advised_by), diagnosis)

    findings = tuple(map(measured, diagnosis.findings))
    said = tuple(
        f"{each.title}: {text[0].lower()}{text[1:].removesuffix('.')}"
        for each in with_symptoms(findings)
        if (text := in_words(_of_first_fix(each, by_rule.get(each.rule, ()), advised_by)))
    )
    return replace(diagnosis, findings=findings, notes=(*diagnosis.notes, *said))


def _of_first_fix(advice: Advice, rows: Sequence[_Row], advised_by: Mapping[str, str]) -> list[_Row]:
    """Measurements of what the advice begins with, for which the saving is predicted: tried fixes, and edits."""
    names = {EDIT, *(_advised(advice.fixes[0], advised_by) if advice.fixes else ())}
    return [row for row in rows if row["fix"] in names and row["measured_likely"] is not None]


def _measured(advice: Advice, rows: Sequence[_Row], diagnosis: Diagnosis) -> Advice:
    ratios = sorted(
        row["measured_likely"] / row["promised_likely"] for row in rows if (row["promised_likely"] or 0) > 0
    )
    saving, base_ns = advice.saving_ns_per_step, diagnosis.base_ns
    if not ratios or not saving.likely or not base_ns or advice.basis == "run":
        return advice
    tail = int(_TAIL * (len(ratios) + 1))
    low, high = (ratio * saving.likely for ratio in (ratios[max(tail - 1, 0)], ratios[-max(tail, 1)]))
    if len(ratios) < _FEWEST:
        low, high = min(low, saving.low), max(high, saving.high)
    most_ns = max(int(base_ns) - 1, saving.likely)
    found = Saving(min(max(round(low), 0), saving.likely), saving.likely, min(max(round(high), saving.likely), most_ns))
    speedup = Range(*(base_ns / max(base_ns - ns, 1) for ns in (found.low, found.likely, found.high)))
    return replace(advice, saving_ns_per_step=found, speedup=speedup)


def _without_harm(advice: Advice, rows: Sequence[_Row], advised_by: Mapping[str, str]) -> Advice:
    """The advice without fixes whose last trial in this project made steps longer; one fix is always left."""
    last: dict[str, _Row] = {}
    for row in rows:
        if row["source"] == "treat":
            last.setdefault(row["fix"], row)
    slower = [row for row in last.values() if row["verdict"] == "slower"]
    kept, left_out, blamed = list[Fix](), list(advice.left_out), list[Fix]()
    for fix in advice.fixes:
        names = _advised(fix, advised_by)
        against = next((row for row in slower if row["fix"] in names), None)
        if against is None:
            kept.append(fix)
            continue
        longer = f"measured in this project to make a step {-against['measured_likely'] * 100:.0f} % longer"
        left_out.append(f"{fix.title}: {longer}")
        blamed.append(replace(fix, caution="it was measured in this project to make steps longer"))
    if kept or not blamed:
        return replace(advice, fixes=tuple(kept), left_out=tuple(left_out))
    return replace(advice, fixes=tuple(blamed))


def _advised(fix: Fix, advised_by: Mapping[str, str]) -> set[str]:
    """The fixes that it advises above all: those that its code names first. Others are named for other cases."""
    places = {name: found.start() for name, each in advised_by.items() if (found := regex(each).search(fix.how))}
    first = min(places.values(), default=0)
    return {name for name, place in places.items() if place == first}

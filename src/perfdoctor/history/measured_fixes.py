"""What does a diagnosis say where its fixes were tried on this kind of machine before?

A prediction rests on trainings that others measured (diagnosis/calibration.py). Fixes that were tried here are nearer:
a range is widened to hold what they saved, and from nine trials on it is theirs alone, as the least and the greatest of
nine hold the next one in 80 of 100 cases, which is what the range stands for. A fix that was measured to hurt this
project is no longer advised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perfdoctor.history.promises import in_words
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
        symptoms = tuple(map(measured, advice.symptoms))
        return _measured(replace(advice, symptoms=symptoms), by_rule.get(advice.rule, ()), diagnosis, advised_by)

    findings = tuple(map(measured, diagnosis.findings))
    said = tuple(
        f"{each.title}: {text[0].lower()}{text[1:].removesuffix('.')}"
        for each in with_symptoms(diagnosis.findings)
        if (text := in_words([row for row in by_rule.get(each.rule, ()) if row["measured_likely"] is not None]))
    )
    return replace(diagnosis, findings=findings, notes=(*diagnosis.notes, *said))


def _measured(advice: Advice, rows: Sequence[_Row], diagnosis: Diagnosis, advised_by: Mapping[str, str]) -> Advice:
    if not rows:
        return advice
    advice = _without_harm(advice, rows, advised_by)
    ratios = sorted(
        row["measured_likely"] / row["promised_likely"]
        for row in rows
        if row["measured_likely"] is not None and (row["promised_likely"] or 0) > 0
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

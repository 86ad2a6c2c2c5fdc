"""What is each finding in full: its numbers, its evidence, its moments, its lines of code, its fix?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfdoctor.assistant.answers.analyze import finding
from perfdoctor.assistant.arguments import Findings
from perfdoctor.assistant.bounded import Answer, name, page
from perfdoctor.assistant.desk import Desk
from perfdoctor.errors import PerfdoctorError
from perfdoctor.records.findings import Advice, CodeLine, Evidence, Measure, Outcome, Rows, with_symptoms
from perfdoctor.report.words import derivations, wording

_MOST_EVIDENCE, _MOST_ROWS, _MOST_LINES = 8, 5, 5


def answer(asked: Findings, desk: Desk) -> Answer:
    diagnosis = desk.diagnosed(asked)
    every = list(with_symptoms(diagnosis.findings))
    zero = min((split.window_start_ns for split in diagnosis.time), default=0)
    wanted = [each for each in every if asked.rule in (None, each.rule)]
    if asked.rule is not None and not wanted:
        found = ", ".join(each.rule for each in every) or "nothing"
        raise PerfdoctorError(_why_none(asked.rule, desk, diagnosis.outcomes), do=f"Found here: {found}.")
    is_alone = asked.rule is not None
    rows, pages = page(wanted, asked.cursor, asked.limit, lambda each: _whole(each, zero, is_alone=is_alone))
    shown = wanted[int(asked.cursor) :][: len(rows)]
    lines = [f"{advice.rule}: {wording.saving(diagnosis, advice)}" for advice in shown]
    return Answer("\n".join(lines) or "No findings.", {"findings": rows, **pages})


def _whole(advice: Advice, zero: int, *, is_alone: bool) -> dict[str, Any]:
    """All fields of a finding; with the code of its fixes and the derivation of its saving if it `is_alone`.

    `zero`: a span's 0 on the recording's clock, in ns.
    """
    fixes = [
        {"title": fix.title, "effort": fix.effort, "changes_numerics": fix.changes_numerics, "caution": fix.caution}
        | ({"how": fix.how} if is_alone else {})
        for fix in advice.fixes
    ]
    more = {"why": advice.why, "not_a_problem_when": advice.not_a_problem_when, "derivation": _derivation(advice)}
    return {
        **finding(advice),
        "summary": advice.summary,
        "confidence_because": advice.confidence_because,
        "symptom_of": advice.symptom_of,
        "values": {name(key): value for key, value in advice.values.items()},
        "evidence": [_evidence(each, zero) for each in advice.evidence[:_MOST_EVIDENCE]],
        "lines": [_line(each) for each in advice.lines[:_MOST_LINES]],
        "fixes": fixes,
        "left_out": list(advice.left_out),
        **(more if is_alone else {}),
    }


def _line(line: CodeLine) -> dict[str, Any]:
    return {
        "file": name(line.file), "line": line.line, "function": name(line.function), "text": list(line.text),
        "samples": line.samples, "share": line.share, "time_ns": line.time_ns,
    }  # fmt: skip


def _evidence(evidence: Evidence, zero: int) -> dict[str, Any]:
    """The fields of one piece of evidence, times on the recording's clock. `zero`: that clock at a span's 0, in ns."""
    label = name(evidence.label)
    if isinstance(evidence, Measure):
        return {"label": label, "value": evidence.value, "unit": evidence.unit}
    if isinstance(evidence, Rows):
        rows = [[name(cell) if isinstance(cell, str) else cell for cell in row] for row in evidence.rows[:_MOST_ROWS]]
        columns = [name(each) for each in evidence.columns]
        return {
            "label": label, "columns": columns, "units": list(evidence.units), "rows": rows,
            "row_count": len(evidence.rows),
        }  # fmt: skip
    start_ns, end_ns = zero + evidence.start_ns, zero + evidence.end_ns
    return {"label": label, "rank": evidence.rank, "start_ns": start_ns, "end_ns": end_ns}


def _derivation(advice: Advice) -> dict[str, Any] | None:
    how = advice.derivation
    if how is None:
        return None
    inputs = [{"name": each.name, "value": each.value, "unit": each.unit, "what": each.what} for each in how.inputs]
    return {"formula": how.formula, "inputs": inputs, "limits": derivations.limits(how)}


def _why_none(rule: str, desk: Desk, outcomes: Sequence[Outcome]) -> str:
    outcome = next((each for each in outcomes if each.rule == rule), None)
    if outcome is None:
        is_known = rule in desk.known
        return f"{name(rule)} is not about this program" if is_known else f"there is no rule {name(rule)!r}"
    if outcome.status == "clear":
        return f"{rule} found nothing here"
    lacking = f": the recording lacks {', '.join(outcome.missing)}" if outcome.missing else ""
    return f"{rule} was not checked{lacking}"

"""What is each finding in full: its numbers, its evidence, its moments, its lines of code, its fix?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfdoctor.assistant.answers.analyze import finding
from perfdoctor.assistant.arguments import Findings
from perfdoctor.assistant.bounded import Answer, name, page
from perfdoctor.assistant.desk import Desk
from perfdoctor.errors import PerfdoctorError
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, CodeLine, Evidence, Measure, Outcome, Rows, Span, with_symptoms
from perfdoctor.report.words import code_lines, derivations, wording
from perfdoctor.report.words.foreign_text import clean, clean_note

#: Of the lines below a finding in the text: moments, and measured numbers.
_MOST_SAID = 4


def answer(asked: Findings, desk: Desk) -> Answer:
    diagnosis = desk.diagnosed(asked)
    every = list(with_symptoms(diagnosis.findings))
    zero = min((split.window_start_ns for split in diagnosis.time), default=0)
    wanted = [each for each in every if asked.rule in (None, each.rule)]
    if asked.rule is not None and not wanted:
        found = ", ".join(each.rule for each in every) or "nothing"
        raise PerfdoctorError(_why_none(asked.rule, desk, diagnosis.outcomes), do=f"Found here: {found}.")
    is_alone = asked.rule is not None
    positions = {each.rule: position for position, each in enumerate(diagnosis.findings, 1)}
    rows, pages = page(wanted, asked, lambda each: _whole(each, positions.get(each.rule), zero, is_alone=is_alone))
    shown = wanted[int(asked.cursor) :][: len(rows)]
    lines = [
        line for each in shown for line in _said(diagnosis, each, positions.get(each.rule), zero, is_alone=is_alone)
    ]
    return Answer("\n".join(lines) or "No findings.", {"findings": rows, **pages})


def _said(diagnosis: Diagnosis, advice: Advice, position: int | None, zero: int, *, is_alone: bool) -> Iterator[str]:
    """The finding as the report words it, under the number that it has there, and its moments on the two clocks."""
    number = f"{position}. " if position else f"Symptom of {advice.symptom_of}: "
    certain = wording.confidence(advice.confidence)
    yield f"{number}{advice.rule}: {advice.title}. {wording.saving(diagnosis, advice)} · {certain}"
    yield f"   {clean_note(advice.summary)}"
    if doubt := wording.certainty(advice) if is_alone else wording.doubt(advice):
        yield f"   {doubt}"
    for line in advice.lines[:1]:
        yield f"   At: {code_lines.place(line)} ({code_lines.weight(line)})"
    for span in [each for each in advice.evidence if isinstance(each, Span)][:_MOST_SAID]:
        start_ns, end_ns = zero + span.start_ns, zero + span.end_ns
        yield f"   {name(span.label)}: {wording.where(span)} (start_ns={start_ns}, end_ns={end_ns})"
    if is_alone:
        for each in [each for each in advice.evidence if isinstance(each, Measure)][:_MOST_SAID]:
            yield f"   {name(each.label)}: {wording.quantity(each.value, each.unit)}"
    for fix in advice.fixes[: None if is_alone else 1]:
        yield f"   Fix: {clean(fix.title)} ({wording.fix_terms(fix)})"


def _whole(advice: Advice, position: int | None, zero: int, *, is_alone: bool) -> dict[str, Any]:
    """The fields of a finding; also tables, all values, the code of its fixes and how its saving was computed if it
    `is_alone`.

    `zero`: a span's 0 on the recording's clock, in ns.
    """
    fixes = [
        {"title": fix.title, "effort": fix.effort, "changes_numerics": fix.changes_numerics, "caution": fix.caution}
        | ({"how": fix.how} if is_alone else {})
        for fix in advice.fixes
    ]
    more = {
        "values": {name(key): value for key, value in advice.values.items()},
        "why": advice.why,
        "not_a_problem_when": advice.not_a_problem_when,
        "derivation": _derivation(advice),
    }
    return {
        **finding(advice, position),
        "summary": advice.summary,
        "confidence_because": advice.confidence_because,
        "symptom_of": advice.symptom_of,
        "evidence": [_evidence(each, zero) for each in advice.evidence if is_alone or not isinstance(each, Rows)],
        "lines": [_line(each) for each in advice.lines],
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
        rows = [[name(cell) if isinstance(cell, str) else cell for cell in row] for row in evidence.rows]
        columns = [name(each) for each in evidence.columns]
        return {"label": label, "columns": columns, "units": list(evidence.units), "rows": rows}
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

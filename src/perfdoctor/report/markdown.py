"""What does one paste into a pull request or an issue? The diagnosis as short GitHub Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perfdoctor.patterns import regex
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, CodeLine, Fix, Measure, Rows, Span
from perfdoctor.records.savings import Derivation
from perfdoctor.report.words import (
    code_lines,
    cost,
    derivations,
    efficiency,
    memory,
    outlook,
    run_time,
    skipped_rules,
    wording,
)
from perfdoctor.report.words.fix_text import blocks
from perfdoctor.report.words.foreign_text import clean, clean_name, clean_note
from perfdoctor.report.words.parts import SHOWN_FINDINGS, all_parts, what_computes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SHOWN_ROWS = 5
_MARKUP = regex(r"([\\`*_\[\]|~#$!])")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# GitHub turns @name into a mention even after a backslash; an empty comment prevents that.
_MENTION = regex(r"@(?=\w)")


def render(diagnosis: Diagnosis) -> str:
    hidden = len(diagnosis.findings) - SHOWN_FINDINGS
    sections = (
        [f"**{escaped(wording.verdict(diagnosis))}**"],
        [escaped(" · ".join(wording.recorded(diagnosis)))],
        _step(diagnosis),
        *(_finding(diagnosis, number, advice) for number, advice in enumerate(diagnosis.findings[:SHOWN_FINDINGS], 1)),
        [f"{wording.counted(hidden, 'smaller finding')} not shown."] if hidden > 0 else [],
        _outlook(diagnosis),
        [escaped(cost.line(diagnosis))] if diagnosis.cost else [],
        _memory(diagnosis),
        listed("Not checked", _not_checked(diagnosis)),
        listed("Notes", (escaped(clean_note(note)) for note in diagnosis.notes)),
    )
    return joined(sections)


def joined(sections: Iterable[Iterable[str]]) -> str:
    """The sections that have lines, a blank line between each and the next."""
    return "\n\n".join("\n".join(lines) for section in sections if (lines := list(section))) + "\n"


def escaped(text: str) -> str:
    """Text that GitHub shows unchanged: no markup, no tags, no mentions."""
    text = "".join(_HTML.get(character, character) for character in text)
    return _MENTION.sub("@<!-- -->", _MARKUP.sub(r"\\\1", text))


def table(head: Iterable[str], numbers: Iterable[bool], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table of escaped cells. `numbers`: which columns are aligned to the right."""
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('--:' if number else '---' for number in numbers)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _step(diagnosis: Diagnosis) -> Iterator[str]:
    shown = all_parts(diagnosis)
    if shown:
        rows = ((part.label, wording.duration(part.shown_ns), wording.share(part.share)) for part in shown)
        yield from table((wording.bar_heading(diagnosis), "time", "share"), (False, True, True), rows)
    if phases := what_computes(diagnosis):
        yield f"\n{escaped(phases)}"
    if critical_path := outlook.critical_path(diagnosis):
        yield f"\nCritical path: {escaped(critical_path)}."
    if use := efficiency.line(diagnosis):
        yield f"\n{escaped(use)}"
    if whole := run_time.line(diagnosis):
        yield f"\n{escaped(whole)}"


def _finding(diagnosis: Diagnosis, number: int, advice: Advice) -> Iterator[str]:
    yield f"### {number}. {escaped(clean(advice.title))}"
    certain = wording.confidence(advice.confidence)
    saving = outlook.after_others(diagnosis, advice) or wording.saving(diagnosis, advice)
    origin = f" from {escaped(clean(advice.origin))}" if advice.origin else ""
    yield f"\n`{clean(advice.rule)}`{origin} · **{saving}** · {certain}"
    yield f"\n{escaped(clean_note(advice.summary))}"
    if certainty := wording.certainty(advice):
        yield f"\n{escaped(certainty)}"
    yield from _lines(advice.lines)
    numbers = [evidence for evidence in advice.evidence if not isinstance(evidence, Rows)]
    if numbers:
        yield "\n" + "\n".join(f"- {_number(evidence)}" for evidence in numbers)
    for rows in (evidence for evidence in advice.evidence if isinstance(evidence, Rows)):
        yield from _rows(rows)
    if advice.fixes:
        yield from _fix(advice.fixes[0])
    yield from _derivation(advice.derivation)
    if advice.symptoms:
        symptoms = (f"{escaped(clean(s.title))} (`{clean(s.rule)}`)" for s in advice.symptoms)
        yield f"\nSymptoms: {'; '.join(symptoms)}."


def _lines(lines: Sequence[CodeLine]) -> Iterator[str]:
    if lines:
        yield "\n**In your code**"
    for line in lines:
        inside = f" in {escaped(name)}" if (name := code_lines.function(line)) else ""
        yield f"\n{escaped(code_lines.place(line))}{inside}: {code_lines.weight(line)}"
        if text := "\n".join(code_lines.text(line)):
            yield _fenced(text, "python")


def _fenced(text: str, language: str) -> str:
    """A block of code. A fence must be longer than any sequence of backticks inside it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"\n{fence}{language}\n{text}\n{fence}"


def _number(evidence: Measure | Span) -> str:
    label = escaped(clean_name(evidence.label))
    if isinstance(evidence, Measure):
        return f"{label}: **{wording.quantity(evidence.value, evidence.unit)}**"
    return f"{label}: {wording.where(evidence)}"


def _rows(evidence: Rows) -> Iterator[str]:
    rows = (
        [escaped(wording.quantity(value, unit, 64)) for value, unit in zip(row, evidence.units, strict=True)]
        for row in evidence.rows[:SHOWN_ROWS]
    )
    yield f"\n{escaped(clean_name(evidence.label))}:\n"
    head = (escaped(clean_name(name)) for name in evidence.columns)
    yield from table(head, [unit != "text" for unit in evidence.units], rows)


def _fix(fix: Fix) -> Iterator[str]:
    yield f"\n**Fix: {escaped(clean(fix.title))}** ({wording.fix_terms(fix)})"
    for block in blocks(fix.how):
        if block.code:
            yield _fenced(block.text, block.language)
        else:
            # In prose `code` stays code.
            pieces = re.split(r"(`[^`\n]+`)", block.text)
            yield "\n" + "".join(piece if place % 2 else escaped(piece) for place, piece in enumerate(pieces))


def _derivation(how: Derivation | None) -> Iterator[str]:
    """Folded, as it is for those who doubt a number."""
    if how is None:
        return
    yield f"\n<details><summary>{derivations.HEADING}</summary>\n"
    for case, formula, result in derivations.formulas(how):
        yield f"- {case}: {escaped(formula)} = **{result}**"
    if how.formula_source:
        yield f"- formula from: {escaped(how.formula_source)}"
    for each in how.inputs:
        number = f"{escaped(each.name)} = {escaped(derivations.amount(each))}"
        yield f"- {number} ({derivations.source(each)}): {escaped(derivations.about(each))}"
    for text in derivations.limits(how) or [derivations.UNLIMITED]:
        yield f"- {escaped(text)}"
    yield "\n</details>"


def _outlook(diagnosis: Diagnosis) -> Iterator[str]:
    """The predicted step after each fix, and after all of them."""
    stages = outlook.stages(diagnosis)
    if not stages:
        return
    yield f"### {outlook.heading(diagnosis)}\n"
    rows = ((escaped(stage.name), wording.duration(stage.step_ns), outlook.change(stage)) for stage in stages)
    yield from table(("fixed", "step", "change"), (False, True, True), rows)
    yield f"\n{escaped(outlook.together(diagnosis))}"


def _memory(diagnosis: Diagnosis) -> Iterator[str]:
    """Each device's peak, by purpose and by source line."""
    if diagnosis.memory:
        yield f"### {memory.heading(diagnosis)}"
    for use in memory.shown(diagnosis):
        yield f"\n{escaped(memory.peak(use))} {escaped(memory.now(use))}\n"
        for what, lines in (("purpose", memory.categories(use)), ("line and callers", memory.holders(use))):
            if lines:
                rows = ((escaped(line.what), line.size, line.share) for line in lines)
                yield from table((what, "allocated", "of the peak"), (False, True, True), rows)
                yield ""


def _not_checked(diagnosis: Diagnosis) -> Iterator[str]:
    for missing, rules, hint in skipped_rules.not_checked(diagnosis):
        yield escaped(skipped_rules.lacking(missing, rules)) + skipped_rules.how_to_check(rules, hint)
    if only_counted := skipped_rules.only_counted(diagnosis):
        yield only_counted
    for rule, error in skipped_rules.failed(diagnosis):
        yield f"{escaped(rule)} failed (a bug in perfdoctor): {escaped(error)}"


def listed(heading: str, lines: Iterable[str]) -> list[str]:
    """A heading and a list of escaped lines; nothing where there are none."""
    items = [f"- {line}" for line in lines]
    return [f"### {heading}", "", *items] if items else []

"""A comparison as short GitHub Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfdoctor.comparison.records import Comparison
from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.report.comparison import words
from perfdoctor.report.markdown import escaped
from perfdoctor.report.words.foreign_text import clean, clean_name
from perfdoctor.report.words.wording import duration

SHOWN = 10


def render(comparison: Comparison, verdict: Sequence[str] = ()) -> str:
    """`verdict`: paragraphs instead of the comparison's own."""
    sections = (
        listed("What differs beside the code", [words.setting(each) for each in comparison.settings]),
        *([each] for each in verdict or [f"**{escaped(words.verdict(comparison))}**"]),
        [escaped(each) for each in (*words.sides(comparison), words.per_item(comparison)) if each],
        [escaped(each) for each in words.interval(comparison)],
        _causes(comparison),
        work_rows(comparison),
        listed("Predicted and measured", [f"{clean(p.title)}: {words.prediction(p)}" for p in comparison.promises]),
        listed(
            words.FINDINGS,
            [
                f"{words.FINDING_FATES[f.fate]}: {clean(f.title)} ({clean_name(f.rule)}) {words.finding(f)}"
                for f in comparison.findings
            ],
        ),
        listed(words.lines_heading(comparison), list(words.lines(comparison))),
        listed("Memory", list(words.memory(comparison))),
        listed("Notes", [clean(note) for note in comparison.notes]),
    )
    return "\n\n".join("\n".join(lines) for section in sections if (lines := list(section))) + "\n"


def _causes(comparison: Comparison) -> Iterator[str]:
    yield "| cause | before | after | difference |"
    yield "| --- | --: | --: | --: |"
    for each in comparison.causes[:SHOWN]:
        yield (
            f"| {escaped(each.label)} | {duration(each.before_ns)} | {duration(each.after_ns)} "
            f"| {words.delta(each.delta_ns)} |"
        )
    for label, was, now, ns in words.sums(comparison, SHOWN):
        yield f"| {label} | {was} | {now} | {words.delta(ns)} |"
    total = comparison.difference_ns + comparison.recording_ns
    step = comparison.step
    yield f"| **together** | {duration(step.before.mean_ns)} | {duration(step.after.mean_ns)} | {words.delta(total)} |"


def work_rows(comparison: Comparison | ScalingResult) -> Iterator[str]:
    """The work that changed most, and the rest, as a table."""
    if not comparison.work:
        return
    yield "| work | | difference |"
    yield "| --- | --- | --: |"
    shown = comparison.work[:SHOWN]
    for each, name in zip(shown, words.works(shown), strict=True):
        more = " · ".join(text for text in (words.FATES[each.fate], words.count(each), words.renamed(each)) if text)
        yield f"| {escaped(name)} | {escaped(more)} | {words.delta(each.delta_ns)} |"
    rest = comparison.work_rest_ns + sum(each.delta_ns for each in comparison.work[SHOWN:])
    yield f"| the rest | | {words.delta(rest)} |"


def listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    """A heading and a list, escaped; nothing where there is nothing."""
    if lines:
        yield f"### {title}\n"
        yield from (f"- {escaped(line)}" for line in lines)

"""A comparison as short GitHub Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perfdoctor.comparison.records import Comparison
from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.report import markdown
from perfdoctor.report.comparison import words
from perfdoctor.report.markdown import escaped, joined, table
from perfdoctor.report.words.foreign_text import clean, clean_name

SHOWN = 10


def render(comparison: Comparison, verdict: Sequence[str] = ()) -> str:
    """`verdict`: paragraphs instead of the comparison's own."""
    sections = (
        listed("What differs beside the code", map(words.setting, comparison.settings)),
        *([each] for each in verdict or [f"**{escaped(words.verdict(comparison))}**"]),
        [escaped(each) for each in (*words.sides(comparison), words.per_item(comparison)) if each],
        [escaped(each) for each in words.interval(comparison)],
        _causes(comparison),
        work_rows(comparison),
        listed("Predicted and measured", (f"{clean(p.title)}: {words.prediction(p)}" for p in comparison.promises)),
        listed(
            words.FINDINGS,
            (
                f"{words.FINDING_FATES[f.fate]}: {clean(f.title)} ({clean_name(f.rule)}) {words.finding(f)}"
                for f in comparison.findings
            ),
        ),
        listed(words.lines_heading(comparison), words.lines(comparison)),
        listed("Memory", words.memory(comparison)),
        listed("Notes", map(clean, comparison.notes)),
    )
    return joined(sections)


def _causes(comparison: Comparison) -> Iterator[str]:
    rows = ((escaped(label), was, now, change) for label, was, now, change in words.cause_rows(comparison, SHOWN))
    *others, (_, was, now, change) = rows
    head = ("cause", "before", "after", "difference")
    return table(head, (False, True, True, True), [*others, ("**together**", was, now, change)])


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


def listed(heading: str, lines: Iterable[str]) -> list[str]:
    """A heading and a list, escaped; nothing where there is nothing."""
    return markdown.listed(heading, map(escaped, lines))

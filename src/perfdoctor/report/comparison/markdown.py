"""What does one paste of a comparison? Short GitHub Markdown, or a block of plain text for an issue or a chat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perfdoctor.comparison.records import Comparison
from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.report import markdown
from perfdoctor.report.brief import block, wrapped
from perfdoctor.report.comparison import words
from perfdoctor.report.markdown import escaped, joined, table
from perfdoctor.report.words.foreign_text import clean, clean_name, clean_note

SHOWN = 10
#: Lines of each list in the block of plain text, and its notes.
_MOST, _MOST_NOTES = 6, 2


def render(comparison: Comparison, verdict: Sequence[str] = ()) -> str:
    """`verdict`: paragraphs instead of the comparison's own."""
    heading = [[each] for each in verdict or [f"**{escaped(words.verdict(comparison))}**"]]
    differing = listed("What differs beside the code", map(words.setting, comparison.settings))
    sections = (
        *([*heading, differing] if comparison.not_comparable else [differing, *heading]),
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
        listed(words.COUNTERS, words.counters(comparison)),
        listed("Notes", map(clean_note, comparison.notes)),
    )
    return joined(sections)


def _causes(comparison: Comparison) -> Iterator[str]:
    if not comparison.causes:
        return iter(())
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
    for each, name in zip(shown, words.works(shown, without_gpu=comparison.without_gpu), strict=True):
        more = " · ".join(text for text in (words.FATES[each.fate], words.count(each), words.renamed(each)) if text)
        yield f"| {escaped(name)} | {escaped(more)} | {words.delta(each.delta_ns)} |"
    rest = comparison.work_rest_ns + sum(each.delta_ns for each in comparison.work[SHOWN:])
    yield f"| the rest | | {words.delta(rest)} |"


def listed(heading: str, lines: Iterable[str]) -> list[str]:
    """A heading and a list, escaped; nothing where there is nothing."""
    return markdown.listed(heading, map(escaped, lines))


def brief(comparison: Comparison) -> str:
    """The comparison in less than 60 lines of plain text."""
    findings = [
        f"{words.FINDING_FATES[each.fate]}: [{clean_name(each.rule)}] {clean(each.title)} {words.finding(each)}".strip()
        for each in comparison.findings
    ]
    sections = (
        wrapped(words.verdict(comparison)),
        [line for each in words.sides(comparison) for line in wrapped(clean(each), most=1)],
        wrapped(words.per_item(comparison)),
        _listed("What differs beside the code:", [clean(words.setting(each)) for each in comparison.settings]),
        list(_aligned_causes(comparison)),
        _listed("Predicted and measured:", [f"{clean(p.title)}: {words.prediction(p)}" for p in comparison.promises]),
        _listed(f"{words.FINDINGS}:", findings),
        _listed("Memory:", list(words.memory(comparison))),
        _listed(f"{words.COUNTERS}:", list(words.counters(comparison))),
        _listed("Notes:", [clean_note(note) for note in comparison.notes[:_MOST_NOTES]]),
    )
    filled = [section for section in sections if section]
    return block([line for place, section in enumerate(filled) for line in ([""] * bool(place) + section)])


def _listed(heading: str, lines: Iterable[str]) -> list[str]:
    """A heading, the first lines, and how many more there are."""
    lines = list(lines)
    more = [f"  … and {len(lines) - _MOST} more"] * (len(lines) > _MOST)
    return (
        [heading, *(line for each in lines[:_MOST] for line in wrapped(each, "  ", "    ", 2)), *more] if lines else []
    )


def _aligned_causes(comparison: Comparison) -> Iterator[str]:
    """The causes that changed most, each before and after."""
    if not comparison.causes:
        return
    rows = [("cause", "before", "after", "difference"), *words.cause_rows(comparison, _MOST)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        numbers = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield f"  {row[0]:<{widths[0]}}  {'  '.join(numbers)}".rstrip()

"""A comparison to be pasted into an issue or a chat, in less than 60 lines: one block of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdoctor.report.brief import block, wrapped
from perfdoctor.report.comparison import words
from perfdoctor.report.words.foreign_text import clean, clean_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from perfdoctor.comparison.records import Comparison

_MOST = 6
_MOST_NOTES = 2


def render(comparison: Comparison) -> str:
    settings = [clean(words.setting(each)) for each in comparison.settings]
    findings = [
        f"{words.FINDING_FATES[each.fate]}: [{clean_name(each.rule)}] {clean(each.title)} {words.finding(each)}".strip()
        for each in comparison.findings
    ]
    sections = (
        wrapped(words.verdict(comparison)),
        [line for each in words.sides(comparison) for line in wrapped(clean(each), most=1)],
        wrapped(words.per_item(comparison)),
        _listed("What differs beside the code:", settings),
        list(_causes(comparison)),
        _listed("Predicted and measured:", [f"{clean(p.title)}: {words.prediction(p)}" for p in comparison.promises]),
        _listed(f"{words.FINDINGS}:", findings),
        _listed("Memory:", list(words.memory(comparison))),
        _listed("Notes:", [clean(note) for note in comparison.notes[:_MOST_NOTES]]),
    )
    filled = [section for section in sections if section]
    return block([line for place, section in enumerate(filled) for line in ([""] * bool(place) + section)])


def _listed(heading: str, lines: Iterable[str]) -> list[str]:
    """The first of them, and how many more there are."""
    lines = list(lines)
    more = [f"  … and {len(lines) - _MOST} more"] * (len(lines) > _MOST)
    return (
        [heading, *(line for each in lines[:_MOST] for line in wrapped(each, "  ", "    ", 2)), *more] if lines else []
    )


def _causes(comparison: Comparison) -> Iterator[str]:
    """The causes that changed most, each before and after."""
    rows = [("cause", "before", "after", "difference"), *words.cause_rows(comparison, _MOST)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        numbers = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        yield f"  {row[0]:<{widths[0]}}  {'  '.join(numbers)}".rstrip()

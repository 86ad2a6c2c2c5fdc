"""What does a person see of treatments in the terminal?"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from perfdoctor.report.comparison.terminal import indented, paragraph, section
from perfdoctor.report.terminal_text import columns, show
from perfdoctor.report.treated import words
from perfdoctor.report.words.foreign_text import clean, clean_note
from perfdoctor.treatments.records import TreatResult, TriedFix

_STYLES = {"keep": "green", "slower": "red", "failed": "red", "changes the numbers": "yellow"}


def render(result: TreatResult, console: Console) -> None:
    """Print the table, and the lines to paste."""
    show(_lines(result, console), console)


def _lines(result: TreatResult, console: Console) -> Iterator[Text]:
    yield from paragraph(console, words.verdict(result), "bold green" if result.together else "bold")
    yield Text()
    if result.rows:
        head = tuple(Text(name, "dim") for name in ("fix", "promised", "measured", "memory", "loss", "verdict"))
        yield from columns([head, *map(_row, words.rows(result))], words=(0, 4, 5))
    yield from section("Why", indented(console, _remarks(result)))
    if result.together is not None:
        yield from section("Best together", indented(console, [words.together(result.together)]))
        yield from section("Lines for the program", (Text(f"  {line}") for line in words.patch(result)))
    yield from section("Not tried", indented(console, (f"{n}: {why}" for n, why in result.left_out.items()), "dim"))
    how = [*words.how(result), *map(clean_note, result.notes)]
    yield from section("How it was measured", indented(console, how, "dim"))


def _row(row: TriedFix) -> tuple[Text, ...]:
    return (
        Text(row.fix), Text(words.promised(row)), Text(words.saving(row.measured)), Text(words.memory(row)),
        Text(words.loss(row.loss)), Text(row.verdict, _STYLES.get(row.verdict, "")),
    )  # fmt: skip


def _remarks(result: TreatResult) -> Iterator[str]:
    for row in words.rows(result):
        parts = [clean(row.why), words.once(row), clean(row.loss.why) if row.loss.verdict == "not judged" else ""]
        if row.verdict == "keep" and row.risk:
            parts.append(row.risk)
        if row.measured_before:
            parts.append(row.measured_before)
        text = " ".join(part if part.endswith(".") else f"{part}." for part in parts if part)
        if text:
            yield f"{row.fix}: {text}"

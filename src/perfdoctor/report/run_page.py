"""What does `perfdoctor explain RUN` show? The findings of one run, and every fix that fits its program, with code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.records.findings import with_symptoms
from perfdoctor.report.terminal_text import WIDEST, show, wrapped
from perfdoctor.report.words import code_lines, code_text, outlook, wording
from perfdoctor.report.words.fix_text import blocks
from perfdoctor.report.words.foreign_text import clean

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice, Fix

DIM = "dim"


def print_page(diagnosis: Diagnosis, console: Console, *, quiet: bool) -> None:
    """All findings of the diagnosis with their fixes; `quiet`: only the fixes."""
    page = _RunPage(diagnosis, console)
    show(page.lines(quiet=quiet), console)


class _RunPage:
    """The page of one diagnosis on one console."""

    def __init__(self, diagnosis: Diagnosis, console: Console) -> None:
        self.diagnosis, self.console = diagnosis, console
        self.width = min(console.width, WIDEST)

    def lines(self, *, quiet: bool) -> Iterator[Text]:
        if not quiet:
            yield from self.wrapped(Text(wording.verdict(self.diagnosis), "bold"))
        for number, advice in enumerate(with_symptoms(self.diagnosis.findings)):
            if number or not quiet:
                yield Text()
            yield from self.finding(advice, quiet=quiet)

    def wrapped(self, text: Text, indent: str = "", first: str | None = None) -> Iterator[Text]:
        text.highlight_regex("`[^`\n]+`", "cyan")
        return wrapped(text, self.console, self.width, indent, first)

    def finding(self, advice: Advice, *, quiet: bool) -> Iterator[Text]:
        """The finding in this run's numbers, why it matters, and its fixes, the least work first."""
        title = Text(clean(advice.title), "bold").append(f"  {wording.rule_name(advice)}", "cyan")
        yield from self.wrapped(title)
        if not quiet:
            yield from self.shown(advice)
        for fix in advice.fixes:
            yield Text()
            yield from self.fix(fix)
        for reason in advice.left_out:
            yield from self.wrapped(Text(f"Left out: {clean(reason)}", DIM), "      ", "  ")

    def shown(self, advice: Advice) -> Iterator[Text]:
        saving = outlook.after_others(self.diagnosis, advice) or wording.saving(self.diagnosis, advice)
        yield from self.wrapped(Text(f"{saving} · {wording.confidence(advice.confidence)}", "cyan"), "  ")
        doubt = wording.certainty(advice)
        for text in (advice.summary, advice.why, doubt, f"Not a problem when: {advice.not_a_problem_when}"):
            if text:
                yield from self.wrapped(Text(clean(text)), "  ")
        for line in advice.lines:
            inside = f" in {name}" if (name := code_lines.function(line)) else ""
            where = f"At: {code_lines.place(line)}{inside} ({code_lines.weight(line)})"
            yield from self.wrapped(Text(where), "      ", "  ")
            yield from (Text(f"      {text}") for text in code_lines.text(line))

    def fix(self, fix: Fix) -> Iterator[Text]:
        title = Text.assemble(("Fix: ", "bold"), (clean(fix.title), "bold"), (f" ({wording.fix_terms(fix)})", DIM))
        yield from self.wrapped(title, "  ")
        for block in blocks(fix.how):
            yield Text()
            if block.code:
                yield from code_text.shown(block, self.console, self.width)
            else:
                yield from self.wrapped(Text(block.text), "  ")

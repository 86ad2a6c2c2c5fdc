"""What does a person see of a comparison in the terminal?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report.comparison import words
from perfdoctor.report.terminal_text import WIDEST, columns, show, wrapped
from perfdoctor.report.words.foreign_text import clean, clean_name, clean_note
from perfdoctor.report.words.wording import counted, duration

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.comparison.records import Comparison
    from perfdoctor.comparison.scaling.records import ScalingResult

SHOWN = 8
_NUMBERS = 40
#: The longest id of a rule has fewer characters.
_RULE = 40
_STYLES = {"faster": "bold green", "slower": "bold red"}


def render(comparison: Comparison, console: Console, *, show_all: bool = False, verdict: Sequence[Text] = ()) -> None:
    """Print it; `show_all` shows every row. `verdict`: instead of the comparison's own."""
    show(_lines(comparison, console, 10_000 if show_all else SHOWN, verdict), console)


def section(title: str, content: Iterable[Text]) -> Iterator[Text]:
    """The lines below a title; nothing where there are none."""
    if lines := list(content):
        yield from (Text(), Text(title, "bold"), *lines)


def paragraph(console: Console, content: str, style: str = "", indent: str = "") -> Iterator[Text]:
    """A text in lines as wide as the console, at most `WIDEST`."""
    return wrapped(Text(content, style), console, min(console.width, WIDEST), indent, indent)


def indented(console: Console, sentences: Iterable[str], style: str = "") -> Iterator[Text]:
    """A paragraph for each sentence, indented."""
    return (line for each in sentences for line in paragraph(console, each, style, "  "))


def _lines(comparison: Comparison, console: Console, most: int, verdict: Sequence[Text]) -> Iterator[Text]:
    text, listed = partial(paragraph, console), partial(indented, console)
    said = verdict or [Text(words.verdict(comparison), _STYLES.get(comparison.verdict, "bold"))]
    heading = [each for line in said for each in wrapped(line, console, min(console.width, WIDEST))]
    differing = [
        line
        for each in comparison.settings
        for line in text(words.setting(each), "yellow" if each.matters else "dim", "  ")
    ]
    beside = [Text("What differs beside the code", "bold"), *differing, Text()] if differing else []
    if comparison.not_comparable:  # then that is why
        yield from (*heading, Text(), *beside)
    else:
        yield from (*beside, *heading)
    if per_item := words.per_item(comparison):
        yield from text(per_item)
    for remark in words.interval(comparison):
        yield from text(remark, "dim")
    if comparison.unknown_settings:
        yield from text(f"Not recorded, so not compared: {', '.join(comparison.unknown_settings)}.", "dim")
    yield from section("Where the difference comes from", _causes(comparison, most))
    yield from section("Which work it is", work_rows(comparison, most, console))
    predicted = (f"{clean(each.title)}: {words.prediction(each)}." for each in comparison.promises)
    yield from section("Predicted and measured", listed(predicted))
    yield from section(words.FINDINGS, _findings(comparison, most))
    yield from section(words.lines_heading(comparison), listed(islice(words.lines(comparison), most)))
    yield from section("Memory", listed(words.memory(comparison)))
    yield from section(words.COUNTERS, listed(words.counters(comparison)))
    yield from section("Notes", listed(map(clean_note, comparison.notes), "dim"))


def _causes(comparison: Comparison, most: int) -> Iterator[Text]:
    if not comparison.causes:
        return iter(())
    step = comparison.step
    rows = [tuple(Text(head, "dim") for head in ("", "before", "after", "difference", ""))]
    for each in comparison.causes[:most]:
        times = (Text(duration(each.before_ns)), Text(duration(each.after_ns)))
        rows.append((Text(each.label), *times, signed(each.delta_ns), Text(words.FATES[each.fate], "dim")))
    for label, before, after, ns in words.sums(comparison, most):
        rows.append((Text(label, "dim"), Text(before), Text(after), Text(words.delta(ns)), Text()))
    total = Text(words.delta(comparison.difference_ns + comparison.recording_ns), "bold")
    means = (Text(duration(side.mean_ns)) for side in (step.before, step.after))
    rows.append((Text("together", "bold"), *means, total, Text()))
    return columns(rows, words=(0, 4))


def work_rows(comparison: Comparison | ScalingResult, most: int, console: Console) -> Iterator[Text]:
    """The work that changed most, and the rest."""
    shown, hidden = comparison.work[:most], comparison.work[most:]
    if not shown:
        return
    width = min(console.width, WIDEST)
    names = words.works(shown, max(width - _NUMBERS, 24), without_gpu=comparison.without_gpu)
    rows = []
    for each, name in zip(shown, names, strict=True):
        more = " · ".join(part for part in (words.FATES[each.fate], words.count(each)) if part)
        rows.append((Text(name), signed(each.delta_ns), Text(more, "dim")))
    rest = comparison.work_rest_ns + sum(each.delta_ns for each in hidden)
    count = counted(comparison.work_rest_count + len(hidden), "smaller change")
    if rest:
        rows.append((Text(f"the rest: {count}", "dim"), Text(words.delta(rest)), Text()))
    yield from columns(rows, words=(0, 2))
    for each in shown:
        if renamed := words.renamed(each):
            text = Text(f"{clean_name(each.label, 40)}: {renamed}", "dim")
            yield from wrapped(text, console, width, "    ", "  ")


def _findings(comparison: Comparison, most: int) -> Iterator[Text]:
    order = ("new", "remaining", "partly fixed", "fixed", "no longer found", "not checked")
    shown = sorted(comparison.findings, key=lambda each: order.index(each.fate))[: max(most, SHOWN)]
    rows = [
        (Text(words.FINDING_FATES[each.fate], {"fixed": "green", "new": "red"}.get(each.fate, "")),
         Text(clean_name(each.rule, _RULE)), Text(words.finding(each)))
        for each in shown
    ]  # fmt: skip
    if rows:
        yield from columns(rows, words=(0, 1))
    if len(comparison.findings) > len(shown):
        yield Text(f"and {len(comparison.findings) - len(shown)} more (--all)", "dim")


def signed(ns: float) -> Text:
    """A difference: green where it got shorter, red where longer."""
    return Text(words.delta(ns), "green" if ns < 0 else "red" if ns > 0 else "")

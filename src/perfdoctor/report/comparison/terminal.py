"""What does a person see of a comparison in the terminal?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report.comparison import words
from perfdoctor.report.terminal_text import WIDEST, columns, wrapped
from perfdoctor.report.words.foreign_text import clean, clean_name
from perfdoctor.report.words.wording import counted, duration

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.comparison.records import Changed, Comparison, Contribution
    from perfdoctor.comparison.scaling.records import ScalingResult

SHOWN = 8
_NUMBERS = 40
#: The longest id of a rule has fewer characters.
_RULE = 40
_STYLES = {"faster": "bold green", "slower": "bold red"}


def render(comparison: Comparison, console: Console, *, show_all: bool = False, verdict: Sequence[Text] = ()) -> None:
    """Print it; `show_all` shows every row. `verdict`: instead of the comparison's own."""
    for line in _lines(comparison, console, 10_000 if show_all else SHOWN, verdict):
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)


def _lines(comparison: Comparison, console: Console, most: int, verdict: Sequence[Text]) -> Iterator[Text]:
    width = min(console.width, WIDEST)

    def text(content: str, style: str = "", indent: str = "") -> Iterator[Text]:
        return wrapped(Text(content, style), console, width, indent, indent)

    def section(title: str, content: Sequence[Text]) -> Iterator[Text]:
        if content:
            yield Text()
            yield Text(title, "bold")
            yield from content

    differs = [
        line
        for each in comparison.settings
        for line in text(words.setting(each), "yellow" if each.matters else "dim", "  ")
    ]
    if differs:
        yield Text("What differs beside the code", "bold")
        yield from differs
        yield Text()
    said = Text(words.verdict(comparison), _STYLES.get(comparison.judged.verdict, "bold"))
    for paragraph in verdict or [said]:
        yield from wrapped(paragraph, console, width)
    if per_item := words.per_item(comparison):
        yield from text(per_item)
    for remark in words.interval(comparison):
        yield from text(remark, "dim")
    if comparison.unknown_settings:
        yield from text(f"Not recorded, so not compared: {', '.join(comparison.unknown_settings)}.", "dim")
    yield from section("Where the difference comes from", list(_causes(comparison, most)))
    yield from section("Which work it is", list(work_rows(comparison, most, console, width)))
    predicted = [
        line for each in comparison.promises
        for line in text(f"{clean(each.title)}: {words.prediction(each)}.", "", "  ")
    ]  # fmt: skip
    yield from section("Predicted and measured", predicted)
    yield from section(words.FINDINGS, list(_findings(comparison, most)))
    own = [line for each in [*words.lines(comparison)][:most] for line in text(each, "", "  ")]
    yield from section(words.lines_heading(comparison), own)
    yield from section("Memory", [line for each in words.memory(comparison) for line in text(each, "", "  ")])
    yield from section("Notes", [line for note in comparison.notes for line in text(clean(note), "dim", "  ")])


def _causes(comparison: Comparison, most: int) -> Iterator[Text]:
    step = comparison.step
    rows = [tuple(Text(head, "dim") for head in ("", "before", "after", "difference", ""))]
    rows += [_cause(each) for each in comparison.causes[:most]]
    for label, before, after, ns in words.sums(comparison, most):
        rows.append((Text(label, "dim"), Text(before), Text(after), Text(words.delta(ns)), Text()))
    total = Text(words.delta(comparison.difference_ns + comparison.recording_ns), "bold")
    means = (Text(duration(side.mean_ns)) for side in (step.before, step.after))
    rows.append((Text("together", "bold"), *means, total, Text()))
    return columns(rows, words=(0, 4))


def _cause(each: Contribution) -> tuple[Text, ...]:
    times = (Text(duration(each.before_ns)), Text(duration(each.after_ns)))
    return (Text(each.label), *times, signed(each.delta_ns), Text(words.FATES[each.fate], "dim"))


def work_rows(comparison: Comparison | ScalingResult, most: int, console: Console, width: int) -> Iterator[Text]:
    """The work that changed most, and the rest."""
    shown, hidden = comparison.work[:most], comparison.work[most:]
    if not shown:
        return
    names = words.works(shown, max(width - _NUMBERS, 24))
    rows = [_changed(each, name) for each, name in zip(shown, names, strict=True)]
    rest = comparison.work_rest_ns + sum(each.delta_ns for each in hidden)
    count = counted(comparison.work_rest_count + len(hidden), "smaller change")
    if rest:
        rows.append((Text(f"the rest: {count}", "dim"), Text(words.delta(rest)), Text()))
    yield from columns(rows, words=(0, 2))
    for each in shown:
        if renamed := words.renamed(each):
            text = Text(f"{clean_name(each.label, 40)}: {renamed}", "dim")
            yield from wrapped(text, console, width, "    ", "  ")


def _changed(each: Changed, name: str) -> tuple[Text, ...]:
    more = " · ".join(part for part in (words.FATES[each.fate], words.count(each)) if part)
    return Text(name), signed(each.delta_ns), Text(more, "dim")


def _findings(comparison: Comparison, most: int) -> Iterator[Text]:
    order = ("new", "remaining", "fixed", "no longer found", "not checked")
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

"""What does a person see of a series over numbers of GPUs in the terminal?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report.comparison.terminal import SHOWN, indented, paragraph, section, signed, work_rows
from perfdoctor.report.comparison.words import delta, rest_of_causes
from perfdoctor.report.scaling import words
from perfdoctor.report.terminal_text import columns, show
from perfdoctor.report.words.foreign_text import clean_note
from perfdoctor.report.words.wording import duration

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.comparison.scaling.records import CauseGrowth, ScalingResult

_COLUMNS = 4


def render(scaling: ScalingResult, console: Console, *, show_all: bool = False) -> None:
    """Print it; `show_all` shows every row."""
    show(_lines(scaling, console, 10_000 if show_all else SHOWN), console)


def _lines(scaling: ScalingResult, console: Console, most: int) -> Iterator[Text]:
    text, listed = partial(paragraph, console), partial(indented, console)
    if scaling.settings:
        yield Text(words.settings_heading(scaling), "bold")
        for each in scaling.settings:
            yield from text(words.setting(scaling, each), "yellow" if each.matters else "dim", "  ")
        yield Text()
    last = scaling.rungs[-1]
    colour = " green" if last.efficiency >= words.GOOD else " red" if last.efficiency < words.BAD else ""
    yield from text(words.verdict(scaling), "bold" if words.is_too_noisy(last) else f"bold{colour}")
    if worst := words.most_lost(scaling):
        yield from text(worst)
    yield from text(words.kind(scaling), "dim")
    yield Text()
    heads = (f"{words.unit(scaling)}s", words.noun(scaling), "throughput", "speed-up", "efficiency")
    rungs = [tuple(map(Text, words.rung(scaling, each))) for each in scaling.rungs]
    yield from columns([tuple(Text(head, "dim") for head in heads), *rungs], words=(4,))
    yield from text(words.counted(scaling), "dim")
    yield from section("What grows", (*_growth(scaling, most), *text(words.fitted(scaling), "dim")))
    yield from section(words.serial_heading(scaling), listed(words.serial(scaling)))
    predicted = [f"{words.checked(scaling, each)}." for each in scaling.checked]
    predicted += [f"{words.ahead(scaling, each)}." for each in scaling.ahead]
    prediction = (*listed(predicted), *listed(words.assumed(scaling), "dim"))
    yield from section(words.prediction_heading(scaling), prediction)
    yield from section(words.work_heading(scaling), work_rows(scaling, most, console))
    yield from section(words.findings_heading(scaling), listed(words.findings(scaling)))
    yield from section("Notes", listed(map(clean_note, scaling.notes), "dim"))


def _growth(scaling: ScalingResult, most: int) -> Iterator[Text]:
    shown, hidden = scaling.growth[:most], scaling.growth[most:]
    at = words.shown_rungs(scaling, _COLUMNS)
    heads = ("", *(words.on(scaling, scaling.rungs[place].ranks) for place in at), "each doubling", "")
    rows = [tuple(Text(head, "dim") for head in heads)]
    rows += [_row(each, at) for each in shown]
    if hidden:
        rest = sum(each.per_doubling_ns for each in hidden)
        rows.append((Text(rest_of_causes(len(hidden)), "dim"), *(Text() for _ in at), Text(delta(rest)), Text()))
    rows.append((Text("together", "bold"), *_row(scaling.whole, at)[1:]))
    return columns(rows, words=(0, len(at) + 2))


def _row(each: CauseGrowth, at: Sequence[int]) -> tuple[Text, ...]:
    times = (Text(words.time(each.times_ns[place])) for place in at)
    error = f"± {duration(each.error_ns)}" if each.error_ns is not None else ""
    return (Text(each.label), *times, signed(each.per_doubling_ns), Text(error, "dim"))

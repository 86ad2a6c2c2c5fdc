"""What does a person see in the terminal? The verdict, one step as a bar, the findings, and last what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.records.findings import Rows
from perfdoctor.report.terminal_bars import bar, has_colours, is_unicode, named_bar, shades, short_label
from perfdoctor.report.terminal_links import SOURCE_LINE, Links
from perfdoctor.report.terminal_text import WIDEST, columns, packed, width_of, wrapped
from perfdoctor.report.words import efficiency, memory, outlook, skipped_rules, wording
from perfdoctor.report.words.foreign_text import clean, shorten
from perfdoctor.report.words.parts import (
    SHOWN_FINDINGS,
    all_parts,
    parts,
    place_names,
    shown_places,
    split_base_ns,
)
from perfdoctor.vocabulary.names.python_code import is_library

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice
    from perfdoctor.records.time_split import TimeSplit

SHOWN_RANKS = 8
#: Up to so many rules that could not look are named with what wakes them; more of them nobody reads.
SHOWN_SKIPPED = 6
_SHOWN_LACKS = 5
#: Cells of a small bar at the end of a line: no fewer tell anything, and more take the room of the numbers.
_SMALLEST_BAR, _LARGEST_BAR = 6, 24
_SHORTEST_NAME = 8

DIM = "dim"
GAIN = "green"
CONFIDENCE = {"high": "green", "medium": "yellow", "low": DIM}


def render(diagnosis: Diagnosis, console: Console, *, show_all: bool = False, page: Path | None = None) -> None:
    """Print the diagnosis; `show_all` lifts the limit of five findings and lists every rank.

    `page` is the HTML report that was written: where the terminal can, findings lead to theirs on it.
    """
    _Page(diagnosis, console, show_all, Links(console, page)).print()


def print_report_path(page: Path, console: Console) -> None:
    """`Report: FILE`, to be clicked where the terminal can."""
    # Not Text.assemble: a path may hold what looks like a style.
    line = Text("Report: ").append(str(page), Links(console, page).to_page())
    console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)


class _Page:
    """One printed report: what all of its sections share."""

    def __init__(self, diagnosis: Diagnosis, console: Console, show_all: bool, links: Links) -> None:
        self.diagnosis = diagnosis
        self.console = console
        self.show_all = show_all
        self.links = links
        self.width = min(console.width, WIDEST)
        self.shades = shades(all_parts(diagnosis), console)
        self.left, self.gone = ("█", "░") if is_unicode(console) else ("#", "-")

    def print(self) -> None:
        sections = (
            self.step(),
            self.ranks(),
            self.findings(),
            self.outlook(),
            self.memory(),
            self.not_looked_at(),
            self.notes(),
            self.next(),
        )
        lines = [*self.wrapped(Text(wording.verdict(self.diagnosis), "bold")), *self.recorded()]
        for section in sections:
            if content := list(section):
                lines += [Text(), *content]
        for line in lines:
            self.console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)

    def wrapped(self, text: Text, indent: str = "", first: str | None = None) -> Iterator[Text]:
        return wrapped(text, self.console, self.width, indent, first)

    def recorded(self) -> Iterator[Text]:
        for line in packed(wording.recorded(self.diagnosis), self.width):
            yield from self.wrapped(Text(line, DIM))

    def step(self) -> Iterator[Text]:
        shown = all_parts(self.diagnosis)
        if not shown:
            return
        yield from self.wrapped(Text(wording.bar_heading(self.diagnosis), "bold"))
        colours = has_colours(self.console)
        yield named_bar(shown, self.width) if colours else bar(shown, self.shades, self.width)
        yield from self.legend()
        if hangs_on := outlook.hangs_on(self.diagnosis):
            yield from self.wrapped(Text(hangs_on, DIM))
        if use := efficiency.line(self.diagnosis):
            yield from self.wrapped(Text(use, DIM))

    def legend(self) -> Iterator[Text]:
        shown = all_parts(self.diagnosis)
        for labels in ([part.label for part in shown], [short_label(part) for part in shown]):
            rows = [
                (self.swatch(part.key), Text(label), *_amounts(part.shown_ns, part.share))
                for part, label in zip(shown, labels, strict=True)
            ]
            if width_of(rows) <= self.width:
                break
        return columns(rows, words=(0, 1))

    def swatch(self, part: str) -> Text:
        """What the part looks like in the bar; smaller than that, so that the two do not flow together."""
        character, style = self.shades[part]
        return Text("■" if style and is_unicode(self.console) else character, style)

    def ranks(self) -> Iterator[Text]:
        """One line a rank; of many ranks the slowest and the median."""
        if len(self.diagnosis.time) < 2:
            return
        places = shown_places(self.diagnosis.time, len(self.diagnosis.time) if self.show_all else SHOWN_RANKS)
        names = place_names(self.diagnosis.time)
        length = "step" if self.diagnosis.per_step else "window"
        rows = [tuple(Text(heading, DIM) for heading in ("", length, "compute", "comm.", "copies", "idle"))]
        for split, remark in places:
            name = names[split.rank, split.device] + (f" ({remark})" if remark else "")
            rows.append((Text(name), *_rank_row(split)))
        if width_of(rows) > self.width:  # the bar tells the shares
            rows = [row[:2] for row in rows]
        longest_ns = max(map(split_base_ns, self.diagnosis.time)) or 1

        def rank_bar(row: int, width: int) -> Text:
            """As long as the rank's step."""
            if not row:
                return Text()
            split = places[row - 1][0]
            shown = parts([split], split_base_ns(split))
            cells = max(round(width * split_base_ns(split) / longest_ns), 1)
            return bar(shown, {**shades(shown, self.console), **self.shades}, cells)

        yield from self.with_bars(rows, rank_bar)

    def with_bars(self, rows: Sequence[tuple[Text, ...]], draw: Callable[[int, int], Text]) -> Iterator[Text]:
        """The columns, and behind them the bar that `draw(row, cells)` makes, if there is room for one."""
        room = min(self.width - width_of(rows) - 2, _LARGEST_BAR)
        if room < _SMALLEST_BAR:
            return columns(rows, words=(0,))
        return columns([(*row, draw(place, room)) for place, row in enumerate(rows)], words=(0, len(rows[0])))

    def findings(self) -> Iterator[Text]:
        findings = self.diagnosis.findings
        shown = findings if self.show_all else findings[:SHOWN_FINDINGS]
        for number, advice in enumerate(shown, start=1):
            if number > 1:
                yield Text()
            yield from self.finding(number, advice)
        if len(shown) < len(findings):
            hidden = wording.counted(len(findings) - len(shown), "smaller finding")
            yield from (Text(), Text(f"{hidden} not shown: --all", DIM))

    def finding(self, number: int, advice: Advice) -> Iterator[Text]:
        leads = self.links.to_finding(number)
        title = Text().append(clean(advice.title), f"bold {leads}").append("  ")
        title.append(clean(advice.rule), f"{DIM} {leads}")
        yield from self.wrapped(title, " " * 4, f"{number:>2}  ")
        for text in self.body(advice):
            for start, end, style in self.links.to_source(text.plain):
                text.stylize(style, start, end)
            yield from self.wrapped(text, " " * 4)
        for symptom in advice.symptoms:
            yield from self.wrapped(_symptom(symptom), " " * 6, "    - ")

    def body(self, advice: Advice) -> Iterator[Text]:
        """What it saves, why we think so, where, and the first fix."""
        certain = (wording.confidence(advice.confidence), CONFIDENCE[advice.confidence])
        saving, behind = wording.saving(self.diagnosis, advice), outlook.behind_others(self.diagnosis, advice)
        yield Text.assemble((behind or saving, "cyan"), " · ", certain)
        yield Text(summary := clean(advice.summary))
        if doubt := wording.certainty(advice) if self.show_all else _doubt(advice):
            yield Text(doubt, DIM)
        if (line := _source_line(advice)) and line not in summary:
            yield Text.assemble(("At: ", "bold"), line)
        for fix in advice.fixes[:1]:
            terms = wording.fix_terms(fix.effort, changes_numerics=fix.changes_numerics)
            yield Text.assemble(("Fix: ", "bold"), clean(fix.title), (f" ({terms})", DIM))

    def outlook(self) -> Iterator[Text]:
        """What the fixes bring together."""
        if together := outlook.together(self.diagnosis):
            yield from (*self.way(), *self.wrapped(Text(together)))

    def way(self) -> Iterator[Text]:
        """One line a fix: the step behind it and all before it, and as a bar what is left and what it has won."""
        stops = outlook.way(self.diagnosis)
        if not stops:
            return
        yield Text(outlook.heading(self.diagnosis), "bold")
        amounts = [(Text(wording.duration(stop.step_ns)), Text(outlook.won(stop), GAIN)) for stop in stops]
        room = max(self.width - width_of(amounts) - 2, _SHORTEST_NAME)
        rows = [(Text(shorten(stop.name, room)), *row) for stop, row in zip(stops, amounts, strict=True)]
        widest_ns = outlook.widest_ns(stops)

        def left_and_won(row: int, width: int) -> Text:
            left, before = (round(width * ns / widest_ns) for ns in (stops[row].step_ns, stops[row].before_ns))
            return Text().append(self.left * left, DIM).append(self.gone * max(before - left, 0), GAIN)

        yield from self.with_bars(rows, left_and_won)

    def memory(self) -> Iterator[Text]:
        """Each device's peak: how much, for what, and who held most of it."""
        if self.diagnosis.memory:
            yield Text(memory.heading(self.diagnosis), "bold")
        for use in memory.shown(self.diagnosis):
            yield from self.wrapped(Text(f"{memory.peak(use)} {memory.now(use)}"))
            for lines in (memory.categories(use), memory.holders(use)):
                rows = [tuple(map(Text, (each.size, each.share, each.count, each.what))) for each in lines]
                for row in columns(rows, words=(3,)) if rows else ():
                    yield from self.wrapped(row, " " * 4, "  ")

    def not_looked_at(self) -> Iterator[Text]:
        """Each group of rules with what wakes it; of many only what they lacked."""
        groups = skipped_rules.not_looked_at(self.diagnosis)
        skipped = sum(len(rules) for _, rules, _ in groups)
        is_short = skipped > SHOWN_SKIPPED and not self.show_all
        lines = [
            skipped_rules.lacking(missing, rules) + (f". To wake: {wake}" if wake else "")
            for missing, rules, wake in groups
        ]
        failed = [
            f"{rule} failed, a bug of perfdoctor: {error}" for rule, error in skipped_rules.failed(self.diagnosis)
        ]
        if is_short:
            yield from self.wrapped(Text.assemble(("Not looked at: ", "bold"), (self.lacks(skipped), DIM)))
            yield from self.listed("Failed", failed)
        else:
            yield from self.listed("Not looked at", [*lines, *failed])

    def lacks(self, skipped: int) -> str:
        """Many rules in one sentence: how many lacked what."""
        lacked = skipped_rules.lacked(self.diagnosis)
        told = [f"{missing} ({number})" for missing, number in lacked[:_SHOWN_LACKS]]
        others = " and others" * (len(lacked) > len(told))
        rules = wording.counted(len(self.diagnosis.outcomes), "rule")
        return f"{skipped} of {rules}, for lack of {', '.join(told)}{others}. Which, and what wakes them: --all"

    def notes(self) -> Iterator[Text]:
        return self.listed("Notes", [clean(note, 240) for note in self.diagnosis.notes])

    def listed(self, heading: str, lines: Sequence[str]) -> Iterator[Text]:
        if lines:
            yield Text(heading, "bold")
        for line in lines:
            yield from self.wrapped(Text(line), "    ", "  - ")

    def next(self) -> Iterator[Text]:
        """Where to read on: the last words, where the eye is when the prompt is back."""
        if self.diagnosis.findings:
            words = "Why, and every fix with its code:"
            command = f"perfdoctor explain {clean(self.diagnosis.findings[0].rule)}"
            fits = len(words) + 1 + len(command) <= self.width  # a command that is torn cannot be copied
            yield from self.wrapped(Text.assemble(words + " " * fits, (command * fits, "bold")))
            if not fits:
                yield Text(command, "bold")


def _amounts(ns: float, share: float) -> tuple[Text, Text]:
    return Text(wording.duration(ns)), Text(wording.share(share))


def _rank_row(split: TimeSplit) -> list[Text]:
    exposed = (split.compute_ns, split.exposed_communication_ns, split.exposed_copy_ns, split.idle_ns)
    amounts = [wording.share_of(part, split.window_ns) for part in exposed]
    return [Text(text) for text in (wording.duration(split_base_ns(split)), *amounts)]


def _doubt(advice: Advice) -> str:
    """What speaks against it: all that follows on what was measured (see `diagnosis/certainty.py`)."""
    against = clean(advice.confidence_because, 240).partition("; ")[2]
    return f"Doubt: {against}" if against and advice.confidence != "high" else ""


def _source_line(advice: Advice) -> str:
    """The first line of own code in a finding's tables, which are sorted by cost; "" where none is named."""
    tables = [table for table in advice.evidence if isinstance(table, Rows)]
    texts = (clean(value, 120) for table in tables for row in table.rows for value in row if isinstance(value, str))
    return next((text for text in texts if SOURCE_LINE.match(text) and not is_library(text)), "")


def _symptom(advice: Advice) -> Text:
    likely = advice.saving_ns_per_step.likely
    amount = f", {wording.duration(likely)}" if likely else ""
    return Text.assemble(("goes with it: ", DIM), clean(advice.title), (f" ({clean(advice.rule)}{amount})", DIM))

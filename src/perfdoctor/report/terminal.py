"""What does a person see in the terminal? The verdict, one step as a bar, the findings, and what was not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report import efficiency, memory, outlook, wording
from perfdoctor.report.foreign_text import clean
from perfdoctor.report.parts import (
    SHOWN_FINDINGS,
    Part,
    all_parts,
    cells,
    parts,
    place_names,
    shown_places,
    split_base_ns,
)

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.findings import Advice, Diagnosis, TimeSplit

SHOWN_RANKS = 8
WIDEST = 100
RANK_BAR = 24

# Okabe and Ito's palette, which stays apart for colour-blind eyes; the legend names each part all the same.
COLOURS = {
    "compute": "#0072b2",
    "exposed_communication": "#e69f00",
    "exposed_copy": "#56b4e9",
    "input_wait": "#d55e00",
    "host_sync": "#cc79a7",
    "launch_bound": "#f0e442",
    "host_work": "#009e73",
    "allocator": "#8c6bb1",
    "storage": "#a6761d",
    "garbage_collection": "#66a61e",
    "compilation": "#7f7f00",
    "peer_wait": "#b35900",
}
GREY = "#8a8a8a"
DIM = "bright_black"
GAIN = "green"
CONFIDENCE = {"high": "green", "medium": "yellow", "low": DIM}
# Without colour the parts differ by their characters: work is dark, idle is light.
SHADES = {"compute": "█", "exposed_communication": "▓", "exposed_copy": "▒"}
ASCII_SHADES = {"compute": "#", "exposed_communication": "%", "exposed_copy": "+"}
IDLE_SHADES = "░:-=~.^'\"o*xv"

Shades = Mapping[str, tuple[str, str]]


def render(diagnosis: Diagnosis, console: Console, *, show_all: bool = False) -> None:
    """Print the diagnosis; `show_all` lifts the limit of five findings and lists every rank."""
    _Page(diagnosis, console, show_all).print()


def wrapped(text: Text, console: Console, width: int, indent: str = "", first: str | None = None) -> Iterator[Text]:
    """The text in lines of at most `width`, each behind `indent`, the first behind `first`."""
    for place, line in enumerate(text.wrap(console, max(width - len(indent), 20))):
        line.rstrip()
        yield Text(first if first is not None and place == 0 else indent) + line


class _Page:
    """One printed report: what all of its sections share."""

    def __init__(self, diagnosis: Diagnosis, console: Console, show_all: bool) -> None:
        self.diagnosis = diagnosis
        self.console = console
        self.show_all = show_all
        self.width = min(console.width, WIDEST)
        self.shades = _shades(all_parts(diagnosis), console)
        self.left, self.gone = ("█", "░") if _is_unicode(console) else ("#", "-")

    def print(self) -> None:
        sections = (
            self.step(),
            self.ranks(),
            self.findings(),
            self.outlook(),
            self.memory(),
            self.not_looked_at(),
            self.notes(),
        )
        lines = [*self.wrapped(Text(wording.verdict(self.diagnosis), "bold")), *self.recorded()]
        for section in sections:
            if content := list(section):
                lines += [Text(), *content]
        for line in lines:
            line.rstrip()
            self.console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)

    def wrapped(self, text: Text, indent: str = "", first: str | None = None) -> Iterator[Text]:
        return wrapped(text, self.console, self.width, indent, first)

    def recorded(self) -> Iterator[Text]:
        return self.wrapped(Text(" · ".join(wording.recorded(self.diagnosis)), DIM))

    def step(self) -> Iterator[Text]:
        shown = all_parts(self.diagnosis)
        if not shown:
            return
        yield Text(wording.bar_heading(self.diagnosis), "bold")
        yield _bar(shown, self.shades, self.width)
        yield from _columns([_legend_row(part, *self.shades[part.key]) for part in shown], left=2)
        if hangs_on := outlook.hangs_on(self.diagnosis):
            yield from self.wrapped(Text(hangs_on, DIM))
        if use := efficiency.line(self.diagnosis):
            yield from self.wrapped(Text(use, DIM))

    def ranks(self) -> Iterator[Text]:
        """One line a rank; of many ranks the slowest and the median."""
        if len(self.diagnosis.time) < 2:
            return
        places = shown_places(self.diagnosis.time, len(self.diagnosis.time) if self.show_all else SHOWN_RANKS)
        names = place_names(self.diagnosis.time)
        length = "step" if self.diagnosis.per_step else "window"
        rows = [tuple(Text(heading, DIM) for heading in ("", length, "compute", "comm.", "copies", "idle", ""))]
        for split, remark in places:
            name = names[split.rank, split.device] + (f" ({remark})" if remark else "")
            rows.append((Text(name), *_rank_row(split), self.rank_bar(split)))
        yield from _columns(rows, left=1)

    def rank_bar(self, split: TimeSplit) -> Text:
        shown = parts([split], split_base_ns(split))
        return _bar(shown, {**_shades(shown, self.console), **self.shades}, RANK_BAR)

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
        title = Text.assemble((clean(advice.title), "bold"), "  ", (clean(advice.rule), DIM))
        yield from self.wrapped(title, " " * 4, f"{number:>2}  ")
        certain = (wording.confidence(advice.confidence), CONFIDENCE[advice.confidence])
        body = [Text.assemble((wording.saving(self.diagnosis, advice), "cyan"), " · ", certain)]
        body.append(Text(clean(advice.summary)))
        if advice.confidence != "high" and advice.confidence_because:
            body.append(Text(wording.certainty(advice), DIM))
        if advice.fixes:
            fix = advice.fixes[0]
            body.append(
                Text.assemble(
                    ("Fix: ", "bold"),
                    clean(fix.title),
                    (f" ({wording.fix_terms(fix.effort, changes_numerics=fix.changes_numerics)})", DIM),
                )
            )
        for text in body:
            yield from self.wrapped(text, " " * 4)
        for symptom in advice.symptoms:
            yield from self.wrapped(_symptom(symptom), " " * 6, "    - ")

    def outlook(self) -> Iterator[Text]:
        """What the fixes bring together, and where to read on."""
        if together := outlook.together(self.diagnosis):
            yield from (*self.way(), *self.wrapped(Text(together)))
        if not self.diagnosis.findings:
            return
        command = f"perfdoctor explain {clean(self.diagnosis.findings[0].rule)}"
        yield from self.wrapped(Text.assemble("Why, and every fix with its code: ", (command, "bold")))

    def way(self) -> Iterator[Text]:
        """One line a fix: the step behind it and all before it, and as a bar what is left and what it has won."""
        stops = outlook.way(self.diagnosis)
        if not stops:
            return
        yield Text(outlook.heading(self.diagnosis), "bold")
        rows = []
        for stop in stops:
            widest_ns = outlook.widest_ns(stops)
            left, gone = (round(RANK_BAR * ns / widest_ns) for ns in (stop.step_ns, stop.before_ns))
            bar = Text(self.left * left).append(self.gone * max(gone - left, 0), GAIN)
            amounts = Text(wording.duration(stop.step_ns)), Text(outlook.won(stop), GAIN)
            rows.append((Text(stop.name), *amounts, bar))
        yield from _columns(rows, left=1)

    def memory(self) -> Iterator[Text]:
        """Each device's peak: how much, for what, and who held most of it."""
        if self.diagnosis.memory:
            yield Text(memory.heading(self.diagnosis), "bold")
        for use in memory.shown(self.diagnosis):
            yield from self.wrapped(Text(f"{memory.peak(use)} {memory.now(use)}"))
            for lines in (memory.categories(use), memory.holders(use)):
                rows = [tuple(map(Text, (each.size, each.share, each.count, each.what))) for each in lines]
                for row in _columns(rows, left=0, words_last=True) if rows else ():
                    yield from self.wrapped(row, " " * 4, "  ")

    def not_looked_at(self) -> Iterator[Text]:
        lines = [
            wording.lacking(missing, rules) + (f". To wake: {wake}" if wake else "")
            for missing, rules, wake in wording.not_looked_at(self.diagnosis)
        ]
        lines += [f"{rule} failed, a bug of perfdoctor: {error}" for rule, error in wording.failed(self.diagnosis)]
        return self.listed("Not looked at", lines)

    def notes(self) -> Iterator[Text]:
        return self.listed("Notes", [clean(note, 240) for note in self.diagnosis.notes])

    def listed(self, heading: str, lines: Sequence[str]) -> Iterator[Text]:
        if lines:
            yield Text(heading, "bold")
        for line in lines:
            yield from self.wrapped(Text(line), "    ", "  - ")


def _is_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")


def _shades(shown: Sequence[Part], console: Console) -> Shades:
    """Each part's character and style on this console."""
    unicode = _is_unicode(console)
    work = SHADES if unicode else ASCII_SHADES
    if console.color_system is not None and not console.no_color:
        return {part.key: (work["compute"], COLOURS.get(part.key, GREY)) for part in shown}
    idle = [part.key for part in shown if part.key not in work]
    light = IDLE_SHADES if unicode else IDLE_SHADES[1:]
    return {**{key: (shade, "") for key, shade in work.items()}, **{key: (light[i], "") for i, key in enumerate(idle)}}


def _bar(shown: Sequence[Part], shades: Shades, width: int) -> Text:
    bar = Text()
    for part, number in zip(shown, cells(shown, width), strict=True):
        character, style = shades[part.key]
        bar.append(character * number, style)
    return bar


def _columns(rows: Sequence[Sequence[Text]], *, left: int, words_last: bool = False) -> Iterator[Text]:
    """Aligned columns, two spaces apart: the first `left` and the last are flush left where they hold words."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text()
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - cell.cell_len)
            bar = place == len(row) - 1 and (width == RANK_BAR or words_last)
            line += cell + Text(gap + "  ") if place < left or bar else Text(gap) + cell + Text("  ")
        yield line


def _legend_row(part: Part, character: str, style: str) -> tuple[Text, ...]:
    amounts = (wording.duration(part.shown_ns), wording.share(part.share))
    return (Text(character, style), Text(part.label), *map(Text, amounts))


def _rank_row(split: TimeSplit) -> list[Text]:
    exposed = (split.compute_ns, split.exposed_communication_ns, split.exposed_copy_ns, split.idle_ns)
    amounts = [wording.share_of(part, split.window_ns) for part in exposed]
    return [Text(text) for text in (wording.duration(split_base_ns(split)), *amounts)]


def _symptom(advice: Advice) -> Text:
    likely = advice.saving_ns_per_step.likely
    amount = f", {wording.duration(likely)}" if likely else ""
    return Text.assemble(("goes with it: ", DIM), clean(advice.title), (f" ({clean(advice.rule)}{amount})", DIM))

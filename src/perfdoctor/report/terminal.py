"""What does a person see in the terminal? The verdict, one step as a bar, the findings, and the next command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report.terminal_bars import bar, has_colours, is_unicode, named_bar, shades, short_label
from perfdoctor.report.terminal_links import TerminalLinks
from perfdoctor.report.terminal_text import WIDEST, columns, packed, show, width_of, wrapped
from perfdoctor.report.words import code_lines, cost, efficiency, memory, outlook, run_time, skipped_rules, wording
from perfdoctor.report.words.foreign_text import clean, clean_name, clean_note, one_line, shorten
from perfdoctor.report.words.parts import (
    SHOWN_FINDINGS,
    all_parts,
    parts,
    place_names,
    shown_places,
    split_base_ns,
    what_computes,
)

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice, CodeLine

SHOWN_RANKS = 8
#: Up to this many skipped rules are named with what to record; a longer list is shown only on request.
SHOWN_SKIPPED = 6
_SHOWN_LACKS = 5
_SHOWN_MODULES = 5
#: Cells of a bar at the end of a line: fewer show nothing, more take space from the numbers.
_SMALLEST_BAR, _LARGEST_BAR = 6, 24
_SHORTEST_NAME = 8

DIM = "dim"
GAIN = "green"
CONFIDENCE = {"high": "green", "medium": "yellow", "low": DIM}


def render(diagnosis: Diagnosis, console: Console, *, show_all: bool = False, page: Path | None = None) -> None:
    """Print the diagnosis; `show_all` shows all findings, ranks and skipped rules, and the costliest modules.

    `page` is the HTML report that was written: findings link to it where the terminal supports links.
    """
    _Page(diagnosis, console, show_all, TerminalLinks(console, page)).print()


def print_report_path(page: Path, console: Console) -> None:
    """`Report: FILE`, as a link where the terminal supports links."""
    # Not Text.assemble: a path may contain what looks like a style.
    line = Text("Report: ").append(one_line(str(page)), TerminalLinks(console, page).to_page())
    show([line], console)


class _Page:
    """One printed report, and what all its sections share."""

    def __init__(self, diagnosis: Diagnosis, console: Console, show_all: bool, links: TerminalLinks) -> None:
        self.diagnosis = diagnosis
        self.console = console
        self.show_all = show_all
        self.links = links
        self.width = min(console.width, WIDEST)
        self.shades = shades(console)
        self.filled, self.saved = ("█", "░") if is_unicode(console) else ("#", "-")

    def print(self) -> None:
        costs = cost.line(self.diagnosis)
        notes = [clean_note(note) for note in self.diagnosis.notes]
        sections = (
            self.step(),
            self.ranks(),
            self.findings(),
            self.outlook(),
            self.wrapped(Text(costs)) if costs else (),
            self.memory(),
            self.modules(),
            self.not_checked(),
            self.listed("Notes", notes),
            self.next(),
        )
        lines = [*self.wrapped(Text(wording.verdict(self.diagnosis), "bold"))]
        for line in packed(wording.recorded(self.diagnosis), self.width):
            lines += self.wrapped(Text(line, DIM))
        for section in sections:
            if content := list(section):
                lines += [Text(), *content]
        show(lines, self.console)

    def wrapped(self, text: Text, indent: str = "", first: str | None = None) -> Iterator[Text]:
        return wrapped(text, self.console, self.width, indent, first)

    def step(self) -> Iterator[Text]:
        shown = all_parts(self.diagnosis)
        if not shown:
            return
        yield from self.wrapped(Text(wording.bar_heading(self.diagnosis), "bold"))
        colours = has_colours(self.console)
        yield named_bar(shown, self.width) if colours else bar(shown, self.shades, self.width)
        yield from self.legend()
        if phases := what_computes(self.diagnosis):
            yield from self.wrapped(Text(phases, DIM))
        if critical_path := outlook.critical_path(self.diagnosis):
            yield from self.wrapped(Text(f"Critical path: {critical_path}.", DIM))
        if use := efficiency.line(self.diagnosis):
            yield from self.wrapped(Text(use, DIM))
        if whole := run_time.line(self.diagnosis):
            yield from self.wrapped(Text(whole))

    def legend(self) -> Iterator[Text]:
        shown = all_parts(self.diagnosis)
        for labels in ([part.label for part in shown], [short_label(part) for part in shown]):
            rows = [
                (
                    self.swatch(part.key),
                    Text(label),
                    Text(wording.duration(part.shown_ns)),
                    Text(wording.share(part.share)),
                )
                for part, label in zip(shown, labels, strict=True)
            ]
            if width_of(rows) <= self.width:
                break
        return columns(rows, words=(0, 1))

    def swatch(self, part: str) -> Text:
        """The part's colour or character in the bar; the square is smaller, so that it does not merge with the bar."""
        character, style = self.shades[part]
        return Text("■" if style and is_unicode(self.console) else character, style)

    def ranks(self) -> Iterator[Text]:
        """A line for each rank; for many ranks only for the slowest and the median."""
        if len(self.diagnosis.time) < 2:
            return
        places = shown_places(self.diagnosis.time, len(self.diagnosis.time) if self.show_all else SHOWN_RANKS)
        names = place_names(self.diagnosis.time)
        length = self.diagnosis.basis.noun or "recording"
        rows = [tuple(Text(heading, DIM) for heading in ("", length, "compute", "comm.", "copies", "idle"))]
        for split, remark in places:
            name = names[split.rank, split.device] + (f" ({remark})" if remark else "")
            exposed = (split.compute_ns, split.exposed_communication_ns, split.exposed_copy_ns, split.idle_ns)
            shares = (wording.share_of(part, split.window_ns) for part in exposed)
            rows.append(tuple(map(Text, (name, wording.duration(split_base_ns(split)), *shares))))
        if width_of(rows) > self.width:  # the bar still shows the shares
            rows = [row[:2] for row in rows]
        longest_ns = max(map(split_base_ns, self.diagnosis.time)) or 1

        def rank_bar(row: int, width: int) -> Text:
            """The bar of a rank, as long as its step."""
            if not row:
                return Text()
            split = places[row - 1][0]
            shown = parts([split], split_base_ns(split))
            cells = max(round(width * split_base_ns(split) / longest_ns), 1)
            return bar(shown, self.shades, cells)

        yield from self.with_bars(rows, rank_bar)

    def with_bars(self, rows: Sequence[tuple[Text, ...]], draw: Callable[[int, int], Text]) -> Iterator[Text]:
        """The columns, followed by the bar that `draw(row, cells)` makes if there is room for one."""
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
        title.append(wording.rule_name(advice), f"{DIM} {leads}")
        yield from self.wrapped(title, " " * 4, f"{number:>2}  ")
        for text in self.body(advice):
            for start, end, style in self.links.to_source(text.plain):
                text.stylize(style, start, end)
            yield from self.wrapped(text, " " * 4)
        for symptom in advice.symptoms:
            likely = symptom.saving_ns_per_step.likely
            amount = f", {wording.duration(likely)}" if likely else ""
            rule = f" ({clean(symptom.rule)}{amount})"
            text = Text.assemble(("symptom: ", DIM), clean(symptom.title), (rule, DIM))
            yield from self.wrapped(text, " " * 6, "    - ")

    def body(self, advice: Advice) -> Iterator[Text]:
        """The predicted saving, the confidence, the summary, where it is in the code, and the first fix."""
        certain = (wording.confidence(advice.confidence), CONFIDENCE[advice.confidence])
        saving, later = wording.saving(self.diagnosis, advice), outlook.after_others(self.diagnosis, advice)
        yield Text.assemble((later or saving, "cyan"), " · ", certain)
        yield Text(summary := clean_note(advice.summary))
        if doubt := wording.certainty(advice) if self.show_all else wording.doubt(advice):
            yield Text(doubt, DIM)
        if advice.lines:
            yield from self.sampled(advice.lines[0])
        elif (line := code_lines.of_tables(advice)) and line not in summary:
            yield Text.assemble(("At: ", "bold"), line)
        for fix in advice.fixes[:1]:
            yield Text.assemble(("Fix: ", "bold"), clean(fix.title), (f" ({wording.fix_terms(fix)})", DIM))

    def sampled(self, line: CodeLine) -> Iterator[Text]:
        """The costliest line of the user's own, with its text."""
        inside = f" in {name}" if (name := code_lines.function(line)) else ""
        yield Text.assemble(("At: ", "bold"), code_lines.place(line), inside, (f" ({code_lines.weight(line)})", DIM))
        for text in code_lines.text(line)[:1]:
            yield Text(f"    {text}")

    def outlook(self) -> Iterator[Text]:
        """The predicted step after each fix, and after all of them."""
        if together := outlook.together(self.diagnosis):
            yield from (*self.stages(), *self.wrapped(Text(together)))

    def stages(self) -> Iterator[Text]:
        """A line for each fix: the step after it and all above it, and a bar of the step and of what the fix saves."""
        stages = outlook.stages(self.diagnosis)
        if not stages:
            return
        yield Text(outlook.heading(self.diagnosis), "bold")
        amounts = [(Text(wording.duration(stage.step_ns)), Text(outlook.change(stage), GAIN)) for stage in stages]
        room = max(self.width - width_of(amounts) - 2, _SHORTEST_NAME)
        rows = [(Text(shorten(stage.name, room)), *row) for stage, row in zip(stages, amounts, strict=True)]
        longest_ns = outlook.longest_ns(stages)

        def step_and_saving(row: int, width: int) -> Text:
            step, before = (round(width * ns / longest_ns) for ns in (stages[row].step_ns, stages[row].before_ns))
            return Text().append(self.filled * step, DIM).append(self.saved * max(before - step, 0), GAIN)

        yield from self.with_bars(rows, step_and_saving)

    def memory(self) -> Iterator[Text]:
        """Each device's peak: its size, its purposes and its largest allocations."""
        if self.diagnosis.memory:
            yield Text(memory.heading(self.diagnosis), "bold")
        for use in memory.shown(self.diagnosis):
            yield from self.wrapped(Text(f"{memory.peak(use)} {memory.now(use)}"))
            for lines in (memory.categories(use), memory.holders(use)):
                rows = [tuple(map(Text, (each.size, each.share, each.count, each.what))) for each in lines]
                for row in columns(rows, words=(3,)) if rows else ():
                    yield from self.wrapped(row, " " * 4, "  ")

    def modules(self) -> Iterator[Text]:
        """The modules that take most without those inside them, if all is shown."""
        costly = [module for module in self.diagnosis.modules if module.path and module.own_ns > 0][:_SHOWN_MODULES]
        if not costly or not self.show_all:
            return
        whole = self.diagnosis.basis.whole
        heading = f"Modules that take most of {whole} by themselves, forward and backward"
        yield from self.wrapped(Text(heading, "bold"))
        rows = []
        for module in costly:
            share = wording.share_of(module.own_ns, self.diagnosis.recorded_ns)
            name = f"{clean_name(module.path)} ({clean_name(module.module_class)})"
            rows.append(tuple(map(Text, (wording.duration(module.own_ns), share, name))))
        for row in columns(rows, words=(2,)):
            yield from self.wrapped(row, " " * 4, "  ")

    def not_checked(self) -> Iterator[Text]:
        """Each group of skipped rules with what to record; for many rules only a count of what they lacked."""
        groups = skipped_rules.not_checked(self.diagnosis)
        skipped = sum(len(rules) for _, rules, _ in groups)
        is_short = skipped > SHOWN_SKIPPED and not self.show_all
        lines = [
            skipped_rules.lacking(missing, rules) + skipped_rules.how_to_check(rules, hint)
            for missing, rules, hint in groups
        ]
        failed = [
            f"{rule} failed (a bug in perfdoctor): {error}" for rule, error in skipped_rules.failed(self.diagnosis)
        ]
        if only_counted := skipped_rules.only_counted(self.diagnosis):
            lines.append(only_counted)
        if is_short:
            yield from self.wrapped(Text.assemble(("Not checked: ", "bold"), (self.lacks(skipped), DIM)))
            yield from self.wrapped(Text(f"{only_counted}.", DIM)) if only_counted else ()
            yield from self.listed("Failed", failed)
        else:
            yield from self.listed("Not checked", [*lines, *failed])

    def lacks(self, skipped: int) -> str:
        """The skipped rules in one sentence: how many lacked which signal."""
        lacked = skipped_rules.lacked(self.diagnosis)
        shown = ", ".join(f"{missing} ({number})" for missing, number in lacked[:_SHOWN_LACKS])
        others = " and others" * (len(lacked) > _SHOWN_LACKS)
        rules = wording.counted(len(self.diagnosis.outcomes) - len(wording.nothing_to_record(self.diagnosis)), "rule")
        return f"{skipped} of {rules}, for lack of {shown}{others}. Names, and what to record: --all"

    def listed(self, heading: str, lines: Sequence[str]) -> Iterator[Text]:
        if lines:
            yield Text(heading, "bold")
        for line in lines:
            yield from self.wrapped(Text(line), "    ", "  - ")

    def next(self) -> Iterator[Text]:
        """The command to read on. It comes last, next to the prompt."""
        if self.diagnosis.findings:
            words = "Details, and every fix with code:"
            first = self.diagnosis.findings[0]
            own = f" --rules {quote(clean(first.origin))}" if first.origin else ""
            command = f"perfdoctor explain {clean(first.rule)}{own}"
            fits = len(words) + 1 + len(command) <= self.width  # a broken command cannot be copied
            yield from self.wrapped(Text.assemble(words + " " * fits, (command * fits, "bold")))
            if not fits:
                yield Text(command, "bold")

"""What does `perfdoctor explain` show of a rule? What it means, how it is detected and fixed, how to verify the fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.patterns import regex
from perfdoctor.report.terminal_links import TerminalLinks
from perfdoctor.report.terminal_text import WIDEST, show, wrapped
from perfdoctor.report.words import code_text
from perfdoctor.report.words.fix_text import blocks
from perfdoctor.report.words.foreign_text import clean
from perfdoctor.report.words.wording import fix_terms
from perfdoctor.vocabulary.derivations import SOURCES, plain, unit_of
from perfdoctor.vocabulary.names.frameworks import in_words
from perfdoctor.vocabulary.parts import PARTS, SHRINKS
from perfdoctor.vocabulary.signals import need_label

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.vocabulary.rulebook import Rule, RuleFix

DIM = "dim"
_INDENT = "  "
_PLACEHOLDER = regex(r"\{[^{}]*\}")
#: A need that every recording with a timeline meets.
_ALWAYS = "places"
_LIMITS = (
    "What limits that further stands in the finding: the replayed step, a loader, the host's pace, physics, time that "
    "only recording takes, noise."
)


def print_page(rule: Rule, known: Mapping[str, Rule], console: Console, *, quiet: bool, verbose: bool) -> None:
    """The whole document of a rule; `quiet`: only its fixes; `verbose`: also the names of signals."""
    page = _RulePage(rule, known, console)
    show(page.fixes() if quiet else page.whole(verbose=verbose), console)


class _RulePage:
    """The page of one rule on one console."""

    def __init__(self, rule: Rule, known: Mapping[str, Rule], console: Console) -> None:
        self.rule = rule
        self.known = known
        self.console = console
        self.links = TerminalLinks(console)
        self.width = min(console.width, WIDEST)

    def whole(self, *, verbose: bool) -> Iterator[Text]:
        rule = self.rule
        yield from self.wrapped(Text(rule.title, "bold"), "")
        origin = f" · from {clean(rule.origin.name)}" if rule.origin else ""
        about = f"{rule.id} · {rule.category} · {rule.status}, since {rule.since}{origin}"
        yield from self.wrapped(Text(about, DIM), "")
        yield from self.section("Why it matters", rule.why)
        yield from self.sentences()
        yield from self.section("How it is detected", *self.needs(verbose=verbose))
        yield from self.thresholds()
        yield from self.derivation()
        yield from self.section("Not a problem when", rule.not_a_problem_when)
        yield from self.section("Related rules", *self.relatives())
        yield Text()
        yield from self.fixes()
        yield from self.afterwards()
        yield from self.references()

    def wrapped(self, text: Text, indent: str = _INDENT, first: str | None = None) -> Iterator[Text]:
        text.highlight_regex("`[^`\n]+`", "cyan")
        return wrapped(text, self.console, self.width, indent, first)

    def section(self, heading: str, *paragraphs: str) -> Iterator[Text]:
        filled = [paragraph for paragraph in paragraphs if paragraph]
        if filled:
            yield from (Text(), Text(heading, "bold"))
        for paragraph in filled:
            yield from self.wrapped(Text(paragraph))

    def sentences(self) -> Iterator[Text]:
        """The sentence of a finding without its numbers, and that of each situation."""
        yield from self.section("What a report says", _PLACEHOLDER.sub("…", self.rule.summary))
        for situation, words in self.rule.summaries.items():
            sentence = f"{situation.replace('-', ' ')}: {_PLACEHOLDER.sub('…', words)}"
            yield from self.wrapped(Text(sentence), "    ", "  - ")

    def needs(self, *, verbose: bool) -> Iterator[str]:
        yield f"From {_listed(self.rule.needs)}."
        if self.rule.needs_without_gpu:
            yield f"On a run without a GPU, from {_listed(self.rule.needs_without_gpu)}."
        if self.rule.doubt:
            yield f"What may be uncertain: {self.rule.doubt}."
        if verbose:
            yield f"Signals: {', '.join(self.rule.needs) or 'none'}."

    def thresholds(self) -> Iterator[Text]:
        for name, threshold in self.rule.thresholds.items():
            line = Text(_INDENT).append(name, "cyan").append(f" = {threshold.value:g} ({threshold.unit})")
            yield from self.wrapped(line, "      ", "")
            yield from self.wrapped(Text(threshold.why, DIM), "      ")
        if self.rule.thresholds:
            name = f'"{self.rule.id}"' if "/" in self.rule.id else self.rule.id
            table = f"[tool.perfdoctor.thresholds.{name}]"
            yield from self.wrapped(Text(f"To change them, set {table} in your pyproject.toml."))

    def derivation(self) -> Iterator[Text]:
        """How a saving is computed, where its numbers come from, and why a planted fault costs more or less."""
        how = self.rule.derivation
        if how is not None:
            yield from (Text(), Text("How the saving is computed", "bold"))
            for situations, cases in how.by_situations.items():
                yield from self.formulas(cases, situations)
            for name, given in how.every_input.items():
                words = f" ({unit_of(name)}, {SOURCES[given.source]}): {given.what}"
                yield from self.wrapped(Text(_INDENT).append(name, "cyan").append(words), "      ", "")
            for text in (f"Formula from: {how.source}" if how.source else "", _LIMITS):
                yield from self.wrapped(Text(text)) if text else ()
        yield from self.section("Planted faults", self.rule.planted)

    def formulas(self, cases: Mapping[str, str], situations: Sequence[str]) -> Iterator[Text]:
        if situations:
            yield from self.wrapped(Text(f"{', '.join(situations).replace('-', ' ')}:"), _INDENT)
        indent = _INDENT * (2 if situations else 1)
        for case, formula in cases.items():
            line = Text(f"{indent}{case} = ").append(plain(formula), "cyan")
            yield from self.wrapped(line, "      ", "")

    def relatives(self) -> Iterator[str]:
        """Rules of which this one is a symptom, and rules that are its symptoms."""
        if self.rule.symptom_of:
            yield f"A symptom of {', '.join(self.rule.symptom_of)}: it disappears when that is fixed."
        symptoms = [rule.id for rule in self.known.values() if self.rule.id in rule.symptom_of]
        if symptoms:
            yield f"Its symptoms, which disappear with it: {', '.join(symptoms)}."

    def fixes(self) -> Iterator[Text]:
        for number, fix in enumerate(self.rule.fixes):
            if number:
                yield Text()
            yield from self.fix(fix)

    def fix(self, fix: RuleFix) -> Iterator[Text]:
        title = Text.assemble(("Fix: ", "bold"), (fix.title, "bold"), (f" ({fix_terms(fix)})", DIM))
        yield from self.wrapped(title, "")
        named = [situation for situation in fix.situations if situation in self.rule.summaries]
        if named and "" not in fix.situations:  # as listed under "What a report says"
            yield from self.wrapped(Text(f"For: {', '.join(named).replace('-', ' ')}", DIM))
        if fix.when:
            yield from self.wrapped(Text(in_words(fix.when), DIM))
        for block in blocks(fix.filled({})):
            yield Text()
            if block.code:
                yield from code_text.shown(block, self.console, self.width)
            else:
                yield from self.wrapped(Text(block.text))

    def afterwards(self) -> Iterator[Text]:
        part = SHRINKS.get(self.rule.action)
        shrinks = f"`{PARTS[part].label}` and the step must be shorter" if part else ""
        yield from self.section(
            "Verify the fix",
            f"Record again in the same way: {shrinks or 'the finding must be gone, or its numbers smaller'}.",
        )
        own = f" --rules {quote(clean(self.rule.origin.name))}" if self.rule.origin else ""
        named = f"--fail-on {self.rule.id}{own}"
        commands = [f"perfdoctor run {named} -- COMMAND    # exits with 3 while it is still found"]
        if self.rule.action:
            asked = f"perfdoctor analyze RECORDING --what-if {self.rule.id}{own}"
            commands.insert(0, f"{asked}    # before the change: the predicted step")
        yield Text()
        yield from (Text(f"    {line}") for line in code_text.folded(commands, self.width - 4))

    def references(self) -> Iterator[Text]:
        if self.rule.references:
            yield from (Text(), Text("References", "bold"))
        for reference in self.rule.references:
            yield Text(_INDENT).append(reference, self.links.to_web(reference))


def _listed(needs: Sequence[str]) -> str:
    """`kernels, and ops or ranges`"""
    specific = [need for need in needs if need != _ALWAYS]
    return ", and ".join(map(need_label, specific)) if specific else "any recording of a training"

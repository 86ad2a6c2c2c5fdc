"""What does one paste into an issue or a chat? The diagnosis in less than 60 lines, the same wherever it is shown.

One block of plain text between fences: no chat and no tracker turns names of a trace into links, mentions or markup
there. Home folders and secrets are left out.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor import __version__
from perfdoctor.patterns import regex
from perfdoctor.report.words import code_lines, cost, efficiency, outlook, run_time, skipped_rules, wording
from perfdoctor.report.words.foreign_text import clean, clean_note
from perfdoctor.report.words.parts import SHOWN_FINDINGS, all_parts, place_names, shown_places, split_base_ns
from perfdoctor.system.masking import MASK, masked_text
from perfdoctor.vocabulary.signals import need_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from perfdoctor.records.diagnosis import Diagnosis
    from perfdoctor.records.findings import Advice

#: With the two fences: what fits onto a screen, and is read.
MOST_LINES = 58
#: Trackers show so many columns of a block without a scroll bar.
WIDTH = 96
_MOST_RECORDED = 4
_MOST_NOTES = 2
_FENCE = regex("`{3,}")
#: Home folders as systems name them: `/home/ada`, `/Users/ada`, `/root`, `C:\Users\ada`, also below a mount.
_HOME = regex(
    r"(?<![/\w.-])(?:/[\w.-]+)*/(?:home|Users|u|users)/[^/\s:'\"]+|(?<![/\w.-])/root(?=[/\s:]|$)|[A-Za-z]:\\Users\\[^\\\s:'\"]+"
)
#: Any other place of one machine: its last two parts say which file it is.
_PLACE = regex(r"(?<![\w.~…)\]}>:*/-])(?:/[^/\s:'\"()]+){2,}(?=/[^/\s:'\"()]+/[^/\s:'\"()]+)")
#: `api_key="…"` within a line of code.
_ASSIGNED = regex(
    r"(?i)((?:key|token|secret|passw|credential|auth)\w{0,80}\s{0,40}[=:]\s{0,40}[rbfu]?)(\"[^\"]*\"|'[^']*'|\"[^\"]*$|'[^']*$)"
)


def render(diagnosis: Diagnosis) -> str:
    """The block of a diagnosis, with as many findings as there is room for, five at most."""
    before, after = list(_before(diagnosis)), list(_after(diagnosis))
    for shown in range(min(SHOWN_FINDINGS, len(diagnosis.findings)), 0, -1):
        lines = [*before, *_findings(diagnosis, shown), *after]
        if len(lines) <= MOST_LINES - 2:
            return block(lines)
    return block([*before, *_findings(diagnosis, min(1, len(diagnosis.findings))), *after])


def block(lines: Sequence[str]) -> str:
    """The first `MOST_LINES` of lines that are wrapped already, between fences that none of them ends."""
    fits = MOST_LINES - 2
    kept = lines if len(lines) <= fits else [*lines[: fits - 1], "…"]
    return "\n".join(["```text", *(_FENCE.sub("'''", line) for line in kept), "```"]) + "\n"


def wrapped(text: str, first: str = "", indent: str | None = None, most: int = 4) -> list[str]:
    """The text without names and secrets in lines of a block, cut after `most`; `first` stands before the first."""
    return textwrap.wrap(
        unsigned(text), WIDTH, initial_indent=first, subsequent_indent=" " * len(first) if indent is None else indent,
        max_lines=most, placeholder=" …", break_on_hyphens=False,
    )  # fmt: skip


def unsigned(text: str) -> str:
    """The text without home folders, other absolute paths but for their last two parts, and what looks like a secret.

    Names of kernels stay as they are: `radix_sort_keys::policy` is no secret.
    """
    text = _ASSIGNED.sub(lambda found: found[1] + MASK, text)
    text = masked_text(text)
    home = str(Path.home())
    text = text.replace(home, "~") if len(home) > 1 else text
    return _PLACE.sub("…", _HOME.sub("~", text))


def _before(diagnosis: Diagnosis) -> Iterator[str]:
    yield from wrapped(wording.verdict(diagnosis))
    pieces = wording.recorded(diagnosis)
    tools = [f"and {len(pieces) - _MOST_RECORDED} more"] * (len(pieces) > _MOST_RECORDED + 1)
    shown = [*pieces[: _MOST_RECORDED if tools else None], *tools]
    yield from wrapped(" · ".join((*shown, f"perfdoctor {__version__}")), most=3)
    yield from _step(diagnosis)
    yield from _ranks(diagnosis)
    if critical_path := outlook.critical_path(diagnosis):
        yield from wrapped(f"Critical path: {critical_path}.", most=2)
    if use := efficiency.line(diagnosis):
        yield from wrapped(use, most=2)
    if whole := run_time.line(diagnosis):
        yield from wrapped(whole, most=2)


def _step(diagnosis: Diagnosis) -> Iterator[str]:
    """Each part of the step with its time and share, one a line."""
    shown = all_parts(diagnosis)
    if not shown:
        return
    yield from ("", *wrapped(f"{wording.bar_heading(diagnosis)}:", most=1))
    rows = [(part.label, wording.duration(part.shown_ns), wording.share(part.share)) for part in shown]
    label, time = (max(len(row[column]) for row in rows) for column in (0, 1))
    for row in rows:
        yield f"  {row[0]:<{label}}  {row[1]:>{time}}  {row[2]:>5}"


def _ranks(diagnosis: Diagnosis) -> Iterator[str]:
    """The longest and the median step of several ranks."""
    if len(diagnosis.time) < 2:
        return
    names = place_names(diagnosis.time)
    shown = [
        f"{names[split.rank, split.device]} {wording.duration(split_base_ns(split))} ({remark})"
        for split, remark in shown_places(diagnosis.time, 0)
    ]
    yield from wrapped(f"Ranks: {', '.join(shown)}.", most=1)


def _findings(diagnosis: Diagnosis, number: int) -> Iterator[str]:
    for place, advice in enumerate(diagnosis.findings[:number], 1):
        yield ""
        yield from _finding(diagnosis, place, advice)
    if hidden := len(diagnosis.findings) - number:
        yield ""
        rules = ", ".join(clean(advice.rule) for advice in diagnosis.findings[number:])
        yield from wrapped(f"{wording.counted(hidden, 'smaller finding')} not shown: {rules}", most=2)


def _finding(diagnosis: Diagnosis, place: int, advice: Advice) -> Iterator[str]:
    yield from wrapped(f"[{wording.rule_name(advice)}] {clean(advice.title)}", f"{place}. ", most=2)
    saving = outlook.after_others(diagnosis, advice) or wording.saving(diagnosis, advice)
    yield from wrapped(f"{saving} · {wording.confidence(advice.confidence)}", "   ", most=1)
    yield from wrapped(clean_note(advice.summary), "   ")
    if doubt := wording.doubt(advice):
        yield from wrapped(doubt, "   ", most=2)
    yield from _line(advice)
    for fix in advice.fixes[:1]:
        yield from wrapped(f"Fix: {clean(fix.title)} ({wording.fix_terms(fix)})", "   ", "        ", most=2)
    if advice.symptoms:
        symptoms = ", ".join(clean(symptom.rule) for symptom in advice.symptoms)
        yield from wrapped(f"Symptoms: {symptoms}", "   ", most=1)


def _line(advice: Advice) -> Iterator[str]:
    """The costliest line of the user's own code, with its text where that was recorded."""
    if not advice.lines:
        if place := code_lines.of_tables(advice):
            yield from wrapped(f"At: {place}", "   ", most=1)
        return
    line = advice.lines[0]
    inside = f" in {name}" if (name := code_lines.function(line)) else ""
    yield from wrapped(f"At: {code_lines.place(line)}{inside} ({code_lines.weight(line)})", "   ", "       ", most=2)
    for text in code_lines.text(line)[:1]:
        yield from wrapped(text.strip(), "       ", most=1)


def _after(diagnosis: Diagnosis) -> Iterator[str]:
    if together := outlook.together(diagnosis):
        yield from ("", *wrapped(together, most=2))
    if diagnosis.cost:
        yield from wrapped(cost.line(diagnosis), most=2)
    remarks = [*_remarks(diagnosis)]
    yield from _section("", [line for remark in remarks for line in wrapped(remark, most=2)])
    yield from _section("Next:", [line for each in _next(diagnosis) for line in wrapped(each, "  ", "    ", most=2)])


def _remarks(diagnosis: Diagnosis) -> Iterator[str]:
    skipped = sum(len(rules) for _, rules, _ in skipped_rules.not_checked(diagnosis))
    if skipped:
        lacked = ", ".join(f"{missing} ({number})" for missing, number in skipped_rules.lacked(diagnosis)[:3])
        yield f"Not checked: {skipped} of {wording.counted(len(diagnosis.outcomes), 'rule')}, for lack of {lacked} …"
    for rule, error in skipped_rules.failed(diagnosis)[:1]:
        yield f"{rule} failed (a bug in perfdoctor): {error}"
    yield from (f"Note: {clean_note(note)}" for note in diagnosis.notes[:_MOST_NOTES])


def _next(diagnosis: Diagnosis) -> Iterator[str]:
    """Commands, and what to record for the largest group of several rules that could not be checked."""
    if diagnosis.findings:
        yield f"perfdoctor explain {clean(diagnosis.findings[0].rule)}  # every fix with code"
        if diagnosis.findings[0].saving_ns_per_step.high:
            yield "perfdoctor compare BEFORE AFTER  # once it is fixed and recorded again"
    # A training of one rank needs no others to be recorded.
    of_several = [need_label(need) for need in ("ranks", "collectives")] if diagnosis.world_size < 2 else []
    hints = (
        hint
        for missing, rules, hint in skipped_rules.not_checked(diagnosis)
        if hint and len(rules) > 1 and not any(need in missing for need in of_several)
    )
    if hint := next(hints, ""):
        yield f"To check more: {hint}"


def _section(heading: str, lines: Iterable[str]) -> Iterator[str]:
    lines = list(lines)
    if lines:
        yield from ("", *filter(None, [heading]), *lines)

"""How is a check against a baseline put into words?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from perfdoctor.comparison.check import MOST_RUNS, Check
from perfdoctor.comparison.records import FindingChange
from perfdoctor.report.comparison import words
from perfdoctor.report.words import trends
from perfdoctor.report.words.foreign_text import clean, clean_name
from perfdoctor.report.words.wording import counted, duration

Level = Literal["error", "warning", "notice"]
#: Causes that are named where a line is all there is.
_CAUSES = 3
#: Less of the difference is no reason for it.
_NOTABLE = 0.1


def _share(number: float) -> str:
    """`3 %`, `2.5 %`: as it was asked for."""
    return f"{number * 100:.10g} %"


def title(check: Check) -> str:
    """The decision in a few words."""
    judged = check.comparison.judged
    if check.failed:
        return f"Regression, above the limit of {_share(check.limit)}"
    if check.decision == "regression":
        within = judged.high is not None and judged.high <= check.limit
        return f"Slower, {'within' if within else 'perhaps above'} the limit of {_share(check.limit)}"
    return {"improvement": "Improvement", "no change": "No change"}.get(check.decision, "Too noisy to say")


def verdict(check: Check) -> str:
    """The first line: what was decided, and from which numbers."""
    comparison = check.comparison
    judged = comparison.judged
    times, change = words.times_of(comparison), words.percent(judged.change)
    if judged.low is None:
        return f"Too little to say: {times} ({change}), and one {words.unit(comparison)} shows no spread."
    if check.decision == "too noisy":
        bounds = words.bounds_of(judged)
        limit = _share(check.limit)
        return f"Too noisy to say: {times}, {change}, but anything from {bounds} fits; the limit is {limit}."
    seen = f"; {_share(check.within)} would have been seen" if check.decision == "no change" else ""
    return f"{title(check)}: {times}, {change} ({words.bounds_of(judged)}){seen}."


def runs_needed(check: Check) -> str:
    """How many runs would decide what the noise hides; "" where it hides nothing."""
    judged = check.comparison.judged
    if check.decision != "too noisy" or judged.low is None:
        return ""
    if check.runs_needed is not None:
        have = f"here {judged.before.runs} and {judged.after.runs}"
        seen = f"show whether it changed by {_share(check.within)}"
        return f"About {check.runs_needed} runs on each side would {seen} ({have})."
    if judged.contended:
        return "No number of runs would decide it while other programs have the cores: record on a quieter machine."
    return f"More than {MOST_RUNS} runs on each side would be needed: raise the limit, or record on a quieter machine."


def baseline(check: Check) -> str:
    """`Baseline (BEFORE): main, 3 runs, the last of 2026-11-22 10:31 UTC at commit 3fa9c1; known from the history.`"""
    every = check.baseline_runs
    last = max(every, key=lambda each: each.recorded_at)
    of = f", {'the last ' if len(every) > 1 else ''}of {trends.day(last.recorded_at)} UTC" if last.recorded_at else ""
    commit = trends.short_commit(last.commit, dirty=last.dirty)
    stored = sum(not each.by_recording for each in every)
    which = f"{stored} of them " if stored < len(every) else ""
    return (
        f"Baseline (BEFORE): {clean_name(check.baseline)}, {counted(len(every), 'run')}{of}"
        f"{f' at commit {commit}' if commit else ''}{f'; {which}known from the history alone' if stored else ''}."
    )


def heading(check: Check) -> list[str]:
    """What stands above a comparison: the verdict, what would decide, and what it was held against."""
    return [line for line in (verdict(check), runs_needed(check), baseline(check)) if line]


def causes(check: Check) -> Iterator[str]:
    """The causes of most of a sure difference, largest first: `input wait +4.10 ms`.

    Nothing where recorded steps changed the other way: recording stretched one side more.
    """
    comparison = check.comparison
    whole = comparison.difference_ns
    if check.decision not in ("regression", "improvement") or whole * comparison.judged.change <= 0:
        return
    for each in comparison.causes[:_CAUSES]:
        if each.delta_ns / whole >= _NOTABLE and each.fate != "same":
            yield f"{each.label} {words.delta(each.delta_ns)}"


def finding(each: FindingChange) -> str:
    """`New: Training waits for data (input-wait), 4.10 ms a step`"""
    size = f", {duration(each.after_ns)} a step" if each.after_ns else ""
    return f"{each.fate.capitalize()}: {clean(each.title)} ({clean_name(each.rule)}){size}"


def level(check: Check) -> Level:
    """Level of the annotation: only what fails the check is an error."""
    if check.failed:
        return "error"
    return "warning" if check.decision in ("regression", "too noisy") else "notice"


def new_findings(check: Check) -> list[FindingChange]:
    """New findings of a slower step; where it is no slower, none of them is a reason to stop."""
    return [each for each in check.comparison.findings if each.fate == "new"] if check.decision == "regression" else []


def place_of(check: Check, each: FindingChange | None = None) -> tuple[str, int] | None:
    """File (from the root of the checkout) and line (from 1) of a finding, or of the program; None if not known."""
    return check.sources.get(each.line if each else "")

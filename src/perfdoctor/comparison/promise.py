"""Was what the diagnosis of BEFORE predicted kept, and if not, why?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdoctor.comparison.contributions import largest_growth, part_of
from perfdoctor.comparison.records import (
    Contribution,
    FindingChange,
    FindingFate,
    Kept,
    Promise,
    Saving,
    Setting,
    Snapshot,
    StepChange,
)

#: A finding whose part of the step shrank by half was worked on, even if some of it is left.
_MOSTLY = 0.5


def finding_changes(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> tuple[FindingChange, ...]:
    """Fixed, new and remaining findings, the costliest first. Of several runs: what is found in any of them."""
    ours, theirs = _findings(before), _findings(after)
    checked = frozenset.intersection(*(each.checked for each in after))
    found = []
    for rule in dict.fromkeys((*ours, *theirs)):
        was, now = ours.get(rule), theirs.get(rule)
        one = now or was
        assert one is not None
        fate: FindingFate = (
            "remaining" if was and now else "new" if now else "fixed" if rule in checked else "not checked"
        )
        ns = (was.likely if was else 0.0, now.likely if now else 0.0)
        found.append(FindingChange(rule, one.title, fate, *ns, one.line, one.origin))
    return tuple(sorted(found, key=lambda each: -max(each.before_ns, each.after_ns)))


def _findings(runs: Sequence[Snapshot]) -> dict[str, Saving]:
    """By rule, the costliest of all runs."""
    found: dict[str, Saving] = {}
    for run in runs:
        for each in run.findings:
            if each.rule not in found or each.likely > found[each.rule].likely:
                found[each.rule] = each
    return found


def promises(
    before: Sequence[Snapshot],
    findings: Sequence[FindingChange],
    step: StepChange,
    causes: Sequence[Contribution],
    settings: Sequence[Setting],
) -> tuple[Promise, ...]:
    """What was predicted for the findings that are fixed: for all together, then for each."""
    savings = _findings(before)
    fixed = [savings[each.rule] for each in findings if _is_fixed(each, savings, causes)]
    worked_on = [each for each in fixed if each.likely]
    if not worked_on:
        return ()
    shown_ns = step.before.mean_ns - step.after.mean_ns
    margin = _margin(step)
    low, likely, high = _together(worked_on, before[0].predictions, step.before.mean_ns)
    rules = tuple(each.rule for each in worked_on)
    title = worked_on[0].title if len(worked_on) == 1 else "All that was fixed"
    whole = Promise(
        rules, title, low, likely, high, shown_ns,
        *_kept(low, high, shown_ns, margin, causes, settings), whole=True,
    )  # fmt: skip
    if len(worked_on) == 1:
        return (whole,)
    return (whole, *(each for saving in worked_on for each in _alone(saving, worked_on, causes, settings)))


def _is_fixed(change: FindingChange, savings: Mapping[str, Saving], causes: Sequence[Contribution]) -> bool:
    if change.rule not in savings:
        return False
    if change.fate == "remaining":
        own = [each for each in causes if part_of(each.key) in savings[change.rule].parts]
        return change.after_ns < _MOSTLY * change.before_ns and sum(each.delta_ns for each in own) < 0
    return change.fate == "fixed"


def _margin(step: StepChange) -> float:
    """Half of the interval of the difference, in ns; infinite where it is not known."""
    if step.low is None or step.high is None:
        return float("inf")
    return (step.high - step.low) / 2 * step.before.mean_ns


def _together(
    fixed: Sequence[Saving], predictions: Mapping[tuple[str, ...], tuple[float, float, float]], step_ns: float
) -> tuple[float, float, float]:
    """What all of them save together: as it was replayed, else as much as they can at most without each other."""
    if len(fixed) == 1:
        return fixed[0].low, fixed[0].likely, fixed[0].high
    known = predictions.get(tuple(sorted({each.rule for each in fixed})))
    if known is not None:
        low, likely, high = known
        return max(step_ns - high, 0.0), step_ns - likely, step_ns - low
    # Findings overlap: together they save no less than the largest, and no more than their sum.
    return (
        max(each.low for each in fixed),
        min(sum(each.likely for each in fixed), step_ns),
        min(sum(each.high for each in fixed), step_ns),
    )


def _alone(
    saving: Saving, fixed: Sequence[Saving], causes: Sequence[Contribution], settings: Sequence[Setting]
) -> tuple[Promise, ...]:
    """Held against its part of the step; nothing where the part is not its own."""
    if not saving.parts or any(set(other.parts) & set(saving.parts) for other in fixed if other.rule != saving.rule):
        return ()
    own = [each for each in causes if part_of(each.key) in saving.parts]
    shown_ns = -float(sum(each.delta_ns for each in own))
    kept, because = _kept(saving.low, saving.high, shown_ns, 0.0, causes, settings)
    return (Promise((saving.rule,), saving.title, saving.low, saving.likely, saving.high, shown_ns, kept, because),)


def _kept(
    low: float, high: float, shown_ns: float, margin: float, causes: Sequence[Contribution], settings: Sequence[Setting]
) -> tuple[Kept, str]:
    """The word, and the likely reason."""
    if low <= shown_ns <= high:
        return "kept", ""
    word: Kept = "more" if shown_ns > high else "less"
    missed = shown_ns - high if word == "more" else low - shown_ns
    changed = [each for each in settings if each.matters]
    if changed:
        names = " and ".join(each.name for each in changed)
        return word, f"{names} {'differs' if len(changed) == 1 else 'differ'} as well"
    noise = "the difference is smaller than what runs differ by" if missed <= margin else ""
    if word == "more":
        others = [each for each in causes if each.delta_ns < 0][1:2]
        return word, noise or (f"something else got shorter as well: {others[0].label}" if others else "")
    grown = largest_growth(causes)
    if grown is not None and grown.delta_ns >= missed / 2:
        taken = f"another cause took over: {grown.label}"
        return word, f"{noise}; {taken}" if noise else taken
    return word, noise or "the fix removed only part of it"

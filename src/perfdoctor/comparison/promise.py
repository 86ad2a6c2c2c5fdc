"""Was what the diagnosis of BEFORE predicted kept, and if not, why?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from perfdoctor.comparison.contributions import COMPUTE, part_of
from perfdoctor.comparison.matching import SAME_SHARE
from perfdoctor.comparison.records import (
    Contribution,
    FindingChange,
    FindingFate,
    Kept,
    Promise,
    PromisedSaving,
    Setting,
    Snapshot,
    StepChange,
)

#: A finding whose part of the step shrank by half was worked on, even if some of it is left; and a reason explains half
#: of what a prediction missed by.
_MOSTLY = 0.5
#: Without a GPU the phases of the step are known, and these rules are about one of them.
_PHASES = {"unfused-optimizer": f"{COMPUTE}optimizer", "zero-grad-fills": f"{COMPUTE}optimizer"}
#: Other work than a finding's own is in them as well.
_SHARED_PARTS = ("compute", "exposed_copy", "exposed_communication")


def finding_changes(
    before: Sequence[Snapshot], after: Sequence[Snapshot], causes: Sequence[Contribution] = ()
) -> tuple[FindingChange, ...]:
    """Fixed, new and remaining findings, the costliest first. Of several runs: what is found in any of them."""
    ours, theirs = _findings(before), _findings(after)
    checked = frozenset.intersection(*(each.checked for each in after))
    least_ns = SAME_SHARE * sum(each.before_ns for each in causes)

    def gone(saving: PromisedSaving) -> FindingFate:
        """The fate of a finding that AFTER lacks: fixed only where its part of the step, if it has one, got shorter.

        A share of a longer step may be below a rule's threshold without a fix, and nobody fixed what is about no time.
        """
        if saving.rule not in checked:
            return "not checked"
        own = _own(saving, causes)
        is_shorter = _shorter_ns(own) >= max(least_ns, 1) if own else bool(saving.likely)
        return "fixed" if is_shorter else "no longer found"

    found = []
    for rule in dict.fromkeys((*ours, *theirs)):
        was, now = ours.get(rule), theirs.get(rule)
        one = now or was
        assert one is not None
        fate: FindingFate = "remaining" if was and now else "new" if now else gone(one)
        ns = (was.likely if was else 0.0, now.likely if now else 0.0)
        found.append(FindingChange(rule, one.title, fate, *ns, one.line, one.origin))
    return tuple(sorted(found, key=lambda each: -max(each.before_ns, each.after_ns)))


def _findings(runs: Sequence[Snapshot]) -> dict[str, PromisedSaving]:
    """The costliest finding of each rule in any of the runs."""
    found: dict[str, PromisedSaving] = {}
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
    recording_ns: int,
    same_items: float | None = None,
) -> tuple[Promise, ...]:
    """What was predicted for the findings that are gone: for all together, then for each.

    `recording_ns`: as `Comparison` has it. `same_items`: where batches differ, how many of AFTER's steps take as many
    items as a step of BEFORE.
    """
    savings = _findings(before)
    is_other_work = any(each.matters for each in settings)
    fixed = [savings[each.rule] for each in findings if _is_fixed(each, savings, causes, is_other_work=is_other_work)]
    worked_on = [each for each in fixed if each.likely]
    if not worked_on:
        return ()
    seen = _PromiseOutcome(
        causes, tuple(each.name for each in settings if each.matters), same_items or 1.0, recording_ns
    )
    shown_ns = step.before.mean_ns - step.after.mean_ns * seen.steps_after
    low, likely, high = _together(worked_on, before[0], step.before.mean_ns)
    rules = tuple(each.rule for each in worked_on)
    title = worked_on[0].title if len(worked_on) == 1 else "All that was fixed"
    own = [cause for each in worked_on for cause in _own(each, causes)]
    whole = Promise(
        rules, title, low, likely, high, shown_ns, *_of_step(low, high, shown_ns, _margin(step), own, seen),
        whole=True, same_items=same_items is not None,
    )  # fmt: skip
    if len(worked_on) == 1 and whole.kept == "kept":
        return (whole,)
    return (whole, *(each for saving in worked_on for each in _alone(saving, worked_on, seen)))


class _PromiseOutcome(Struct, frozen=True):
    """What AFTER shows. `differing`: the settings that matter and differ. `steps_after`: so many of AFTER's steps do
    the work of one of BEFORE.
    """

    causes: Sequence[Contribution]
    differing: tuple[str, ...]
    steps_after: float
    recording_ns: int


def _own(saving: PromisedSaving, causes: Sequence[Contribution]) -> list[Contribution]:
    """The causes that the finding's fix makes shorter; empty where none is its own."""
    phase = [each for each in causes if each.key == _PHASES.get(saving.rule)]
    return phase or [each for each in causes if part_of(each.key) in saving.parts]


def _shorter_ns(causes: Sequence[Contribution], steps_after: float = 1.0) -> float:
    return sum(each.before_ns - each.after_ns * steps_after for each in causes)


def _is_fixed(
    change: FindingChange, savings: Mapping[str, PromisedSaving], causes: Sequence[Contribution], *, is_other_work: bool
) -> bool:
    if change.rule not in savings:
        return False
    if change.fate == "remaining":
        return change.after_ns < _MOSTLY * change.before_ns and _shorter_ns(_own(savings[change.rule], causes)) > 0
    # Its part may have grown by something else; of other work, that it is found no more says nothing.
    return change.fate == "fixed" or (change.fate == "no longer found" and not is_other_work)


def _margin(step: StepChange) -> float:
    """Half of the interval of the difference, in ns; infinite where it is not known."""
    if step.low is None or step.high is None:
        return float("inf")
    return (step.high - step.low) / 2 * step.before.mean_ns


def _together(fixed: Sequence[PromisedSaving], before: Snapshot, step_ns: float) -> tuple[float, float, float]:
    """(low, likely, high) that the `fixed` save together in ns: as replayed for BEFORE, else from their own savings.

    Of one part of the step, each is likely to take its share of what the others leave, and all take no more than it.
    """
    known = before.predictions.get(tuple(sorted({each.rule for each in fixed})))
    if known is not None and len(fixed) > 1:
        low, likely, high = known
        return max(step_ns - high, 0.0), step_ns - likely, step_ns - low
    apart = _without_symptoms(fixed)
    by_part: dict[tuple[str, ...], list[PromisedSaving]] = {}
    for each in apart:
        by_part.setdefault(each.parts, []).append(each)
    likely = high = 0.0
    for parts, savings in by_part.items():
        part_ns = max(sum(before.parts.get(part, 0.0) for part in parts), *(each.high for each in savings))
        likely += part_ns * (1 - math.prod(1 - each.likely / part_ns for each in savings))
        high += min(sum(each.high for each in savings), part_ns)
    return max(each.low for each in apart), min(likely, step_ns), min(high, step_ns)


def _without_symptoms(fixed: Sequence[PromisedSaving]) -> list[PromisedSaving]:
    """The larger saving of each cause and its symptoms: one is in the other."""
    rules = {each.rule for each in fixed}
    largest: dict[str, PromisedSaving] = {}
    for each in sorted(fixed, key=lambda each: -each.likely):
        largest.setdefault(each.symptom_of if each.symptom_of in rules else each.rule, each)
    return list(largest.values())


def _alone(saving: PromisedSaving, fixed: Sequence[PromisedSaving], seen: _PromiseOutcome) -> tuple[Promise, ...]:
    """The promise of one of the `fixed` findings beside its part of the step; empty if it has none of its own."""
    own = _own(saving, seen.causes)
    keys = {each.key for each in own}
    others = (other for other in fixed if other.rule != saving.rule)
    if not own or any(each.key in keys for other in others for each in _own(other, seen.causes)):
        return ()
    shown_ns = _shorter_ns(own, seen.steps_after)
    kept = _word(saving.low, saving.high, shown_ns)
    because = "" if kept == "kept" else _differs(seen)
    if kept == "less":
        because = because or "the fix removed only part of it"
    elif kept == "more" and set(saving.parts) & set(_SHARED_PARTS):
        because = because or "other work in that part got shorter as well"
    return (
        Promise(
            (saving.rule,), saving.title, saving.low, saving.likely, saving.high, shown_ns, kept, because,
            same_items=seen.steps_after != 1,
        ),
    )  # fmt: skip


def _word(low: float, high: float, shown_ns: float) -> Kept:
    return "kept" if low <= shown_ns <= high else "more" if shown_ns > high else "less"


def _differs(seen: _PromiseOutcome) -> str:
    names = " and ".join(seen.differing)
    is_one = len(seen.differing) == 1 and names != "ranks"
    return f"{names} {'differs' if is_one else 'differ'} as well" if names else ""


def _of_step(
    low: float, high: float, shown_ns: float, margin: float, own: Sequence[Contribution], seen: _PromiseOutcome
) -> tuple[Kept, str]:
    """Whether the promise was kept, and the likely reason. `own`: the causes that the fixes make shorter."""
    word = _word(low, high, shown_ns)
    if word == "kept":
        return word, ""
    if seen.differing:
        return word, _differs(seen)
    missed = shown_ns - high if word == "more" else low - shown_ns
    return word, "; ".join(_reasons(word, missed, margin, own, seen))


def _reasons(word: Kept, missed: float, margin: float, own: Sequence[Contribution], seen: _PromiseOutcome) -> list[str]:
    """Why the prediction missed by so many ns: each explains half of it at least."""
    reasons = ["runs differ by as much"] if missed <= margin else []
    sign = -1 if word == "more" else 1
    others = [each for each in seen.causes if each.fate != "same" and (word == "less" or each not in own)]
    largest = max(others, key=lambda each: sign * each.delta_ns, default=None)
    if largest is not None and sign * largest.delta_ns >= missed * _MOSTLY:
        if word == "less":
            reasons.append(f"another cause took over: {largest.label}")
        elif not reasons:
            reasons.append(f"something else got shorter as well: {largest.label}")
    elif sign * seen.recording_ns >= missed * _MOSTLY and not reasons:
        reasons.append("recording took another share of both sides")
    if not reasons and word == "less":
        reasons.append("the fix removed only part of it")
    return reasons

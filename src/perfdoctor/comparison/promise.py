"""Was what the diagnosis of BEFORE predicted kept, and if not, why?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from perfdoctor.comparison.contributions import COMPUTE, part_of
from perfdoctor.comparison.matching import OPTIMIZER, SAME_SHARE, UPDATE, fate
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
    WorkTime,
)

#: A finding whose saving shrank by half was worked on, even if some of it is left; and a reason explains half of what a
#: prediction missed by.
_MOSTLY = 0.5
#: Rules about the update of the weights, however its kernels are called: each part of the step has other work as well.
_OF_UPDATES = frozenset({"unfused-optimizer", "zero-grad-fills"})
#: Other work than a finding's own is in them as well.
_SHARED_PARTS = ("compute", "exposed_copy", "exposed_communication")


class OwnTime(Struct, frozen=True):
    """What of the step each finding is about. `causes`: of the whole step; `update`: the update of the weights alone,
    None where it is not known apart.
    """

    causes: Sequence[Contribution]
    update: Contribution | None = None

    @property
    def least_ns(self) -> float:
        """Less is as long as before."""
        return max(SAME_SHARE * sum(each.before_ns for each in self.causes), 1)

    def of(self, saving: PromisedSaving) -> list[Contribution]:
        """The causes that the finding's fix makes shorter; empty where none is its own."""
        if saving.rule in _OF_UPDATES and self.update is not None:
            return [self.update]
        return [each for each in self.causes if part_of(each.key) in saving.parts]

    def is_shorter(self, saving: PromisedSaving) -> bool:
        """Did its part of the step get shorter? Where it has none: was it about any time?"""
        own = self.of(saving)
        return _shorter_ns(own) >= self.least_ns if own else bool(saving.likely)


def own_times(
    causes: Sequence[Contribution], before: Sequence[WorkTime], after: Sequence[WorkTime], *, without_gpu: bool
) -> OwnTime:
    """What findings are about. `before`, `after`: the work of a mean step, in which phases may be known."""
    if without_gpu:  # whose phases are causes
        return OwnTime(causes, next((each for each in causes if each.key == f"{COMPUTE}{OPTIMIZER}"), None))
    sides = [[each for each in side if each.part == "compute"] for side in (before, after)]
    if not all(any(each.phase == OPTIMIZER for each in side) for side in sides):
        return OwnTime(causes)
    was, now = (round(sum(each.ns for each in side if each.phase == OPTIMIZER)) for side in sides)
    step_ns = sum(each.before_ns for each in causes)
    return OwnTime(causes, Contribution(UPDATE, UPDATE, was, now, now - was, fate(was, now, step_ns)))


def finding_changes(
    before: Sequence[Snapshot], after: Sequence[Snapshot], own: OwnTime | None
) -> tuple[FindingChange, ...]:
    """Fixed, new and remaining findings, the costliest first. Of several runs: what is found in any of them.

    A share of a longer step may be below a rule's threshold without a fix, and nobody fixed what is about no time:
    fixed is what is gone and whose part of the step, if it has one, got shorter. `own`: None where the two do not
    compare: then nothing is said to be fixed.
    """
    ours, theirs = _findings(before), _findings(after)
    checked = frozenset.intersection(*(each.checked for each in after))

    def fate_of(was: PromisedSaving | None, now: PromisedSaving | None) -> FindingFate:
        if was is None:
            return "new"
        if now is not None:
            is_less = 0 < now.likely < _MOSTLY * was.likely  # without a likely saving it is not known what is left
            return "partly fixed" if own and is_less and own.of(was) and own.is_shorter(was) else "remaining"
        if was.rule not in checked:
            return "not checked"
        return "fixed" if own and own.is_shorter(was) else "no longer found"

    found = []
    for rule in dict.fromkeys((*ours, *theirs)):
        was, now = ours.get(rule), theirs.get(rule)
        one = now or was
        assert one is not None
        ns = (was.likely if was else 0.0, now.likely if now else 0.0)
        found.append(FindingChange(rule, one.title, fate_of(was, now), *ns, one.line, one.origin))
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
    judged: StepChange,
    own: OwnTime,
    settings: Sequence[Setting],
    recording_ns: int,
    same_items: float | None = None,
) -> tuple[Promise, ...]:
    """What was predicted for the findings that were fixed, wholly or in part: for all together, then for each.

    `judged`: the step, or the time of an item, whose verdict is given. `recording_ns`: as `Comparison` has it.
    `same_items`: where batches differ, how many of AFTER's steps take as many items as a step of BEFORE.
    """
    savings = _findings(before)
    fates = {each.rule: each.fate for each in findings if each.fate in ("fixed", "partly fixed")}
    worked_on = [savings[rule] for rule in fates if savings[rule].likely]
    if not worked_on:
        return ()
    differing = tuple(each.name for each in settings if each.matters)
    seen = _PromiseOutcome(own, differing, same_items or 1.0, recording_ns, step.before.mean_ns, judged)
    shown_ns = step.before.mean_ns - step.after.mean_ns * seen.steps_after
    low, likely, high = _together(worked_on, before[0], step.before.mean_ns)
    rules = tuple(each.rule for each in worked_on)
    wholly = all(fates[rule] == "fixed" for rule in rules)
    title = "All that was fixed" if wholly else "All that was fixed, wholly or in part"
    whole = Promise(
        rules, worked_on[0].title if len(worked_on) == 1 else title, low, likely, high, shown_ns,
        *_of_step(low, high, shown_ns, [cause for each in worked_on for cause in own.of(each)], seen),
        whole=True, same_items=same_items is not None,
    )  # fmt: skip
    if len(worked_on) == 1 and whole.kept == "kept":
        return (whole,)
    return (whole, *(each for saving in worked_on for each in _alone(saving, worked_on, seen)))


class _PromiseOutcome(Struct, frozen=True):
    """What AFTER shows. `differing`: the settings that matter and differ. `steps_after`: so many of AFTER's steps do
    the work of one of BEFORE. `step_ns`: of BEFORE. `judged`: what became of it, and how sure that is.
    """

    own: OwnTime
    differing: tuple[str, ...]
    steps_after: float
    recording_ns: int
    step_ns: float
    judged: StepChange

    @property
    def margin_ns(self) -> float:
        """Half of the interval of the difference; infinite where it is not known."""
        if self.judged.low is None or self.judged.high is None:
            return float("inf")
        return (self.judged.high - self.judged.low) / 2 * self.step_ns


def _shorter_ns(causes: Sequence[Contribution], steps_after: float = 1.0) -> float:
    return sum(each.before_ns - each.after_ns * steps_after for each in causes)


def _together(fixed: Sequence[PromisedSaving], before: Snapshot, step_ns: float) -> tuple[float, float, float]:
    """(low, likely, high) that the `fixed` save together in ns: as replayed for BEFORE, else from their own savings.

    A symptom is in its cause. Of one part of the step, each is likely to take its share of what the others leave, and
    all take no more than it; what is about no part of its own takes its share of what is left of the step.
    """
    apart = _without_symptoms(fixed, before.findings)
    known = before.predictions.get(tuple(sorted({each.rule for each in apart})))
    if known is not None and len(apart) > 1:
        low, likely, high = known
        return max(step_ns - high, 0.0), step_ns - likely, step_ns - low
    likely = high = 0.0
    for parts, savings in _by_parts(apart):
        own_ns = sum(before.parts.get(part, 0.0) for part in parts) if parts else step_ns
        part_ns, left_ns = max(own_ns, *(each.high for each in savings)), step_ns - likely
        share = 1 - math.prod(1 - each.likely / part_ns for each in savings)
        likely += min(share * part_ns, left_ns) if parts else share * left_ns
        high += min(sum(each.high for each in savings), part_ns)
    return max(each.low for each in apart), likely, min(high, step_ns)


def _by_parts(savings: Sequence[PromisedSaving]) -> list[tuple[frozenset[str], list[PromisedSaving]]]:
    """The savings by the parts of the step that they are about; those that share one are together, and those without
    any are last.
    """
    found: list[tuple[frozenset[str], list[PromisedSaving]]] = []
    for each in savings:
        own = frozenset(each.parts)
        shared = [group for group in found if (group[0] & own) or group[0] == own]
        found = [group for group in found if group not in shared]
        parts = own.union(*(group[0] for group in shared))
        found.append((parts, [*(one for group in shared for one in group[1]), each]))
    return sorted(found, key=lambda group: not group[0])


def _without_symptoms(fixed: Sequence[PromisedSaving], every: Sequence[PromisedSaving]) -> list[PromisedSaving]:
    """The larger saving of each cause and its symptoms, and theirs: one is in the other. `every`: of the run."""
    causes = {each.rule: each.symptom_of for each in every}
    rules = {each.rule for each in fixed}

    def first_cause(rule: str) -> str:
        found, seen = rule, {rule}
        while (rule := causes.get(rule, "")) and rule not in seen:
            seen.add(rule)
            found = rule if rule in rules else found
        return found

    largest: dict[str, PromisedSaving] = {}
    for each in sorted(fixed, key=lambda each: -each.likely):
        largest.setdefault(first_cause(each.rule), each)
    return list(largest.values())


def _alone(saving: PromisedSaving, fixed: Sequence[PromisedSaving], seen: _PromiseOutcome) -> tuple[Promise, ...]:
    """The promise of one of the `fixed` findings beside its part of the step; empty if it has none of its own."""
    own = seen.own.of(saving)
    keys = {each.key for each in own}
    others = (other for other in fixed if other.rule != saving.rule)
    if not own or any(each.key in keys for other in others for each in seen.own.of(other)):
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
    low: float, high: float, shown_ns: float, own: Sequence[Contribution], seen: _PromiseOutcome
) -> tuple[Kept, str]:
    """Whether the promise was kept, and the likely reason. `own`: the causes that the fixes make shorter.

    Nothing is said of it where nothing can be said of the step, or where no change of it is seen and none as small as
    what was predicted would be.
    """
    word, margin = _word(low, high, shown_ns), seen.margin_ns
    is_too_noisy = seen.judged.verdict == "too noisy" or seen.judged.low is None
    if is_too_noisy or (seen.judged.verdict == "no change" and low <= shown_ns + margin):
        return "unknown", ""
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
    others = [each for each in seen.own.causes if each.fate != "same" and (word == "less" or each not in own)]
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

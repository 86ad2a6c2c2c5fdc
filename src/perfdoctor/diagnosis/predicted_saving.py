"""By how much does a fix shorten the step? All that limits a saving is applied here, and nowhere else.

A detector expects that a fix takes some time away from the work that it is about. The step gets shorter by less:

```
replayed       the recorded step, simulated with the fix, shows what it waits for instead
else           a loader beside the training hides faster work on the device, and so does a host that is nearly the limit
always         only what is there without a recorder is saved, of the step more than noise remains, and what is less
               than noise is no saving
a busy machine the least that is saved is what others' use of the cores cannot explain
a cause        saves no less than what fixes a part of it
```

The range of what remains is at least as wide as measured savings lie around likely ones (`calibration.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.diagnosis.calibration import NOISE_SHARE, SavingSpread, spread_of
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.real_time import most_real_share, real_share, real_step_ns
from perfdoctor.metrics.host.cpu_use import most_contended_share
from perfdoctor.metrics.host.feeding import unhidden_share
from perfdoctor.metrics.host.pace import run_spare_ns
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Bound, Saving
from perfdoctor.replay.edits.actions import affected_ns
from perfdoctor.replay.what_if.run_replay import RunReplay, SimulatedFix
from perfdoctor.vocabulary.rulebook import Rule


class PredictedSaving(Struct, frozen=True):
    """The saving of one finding and its limits, in ns per step.

    `expected`: what the detector expects a fix to take away; `bound_ns`: the most that physics allow. `replayed`: how
    much shorter the simulated step is, which knows loader and host; None where it cannot be simulated. Then
    `unhidden_share`, the share of steps in which no loader hides the saving, and `host_spare_ns`, the most that the
    host can spare (None: not known, or the fix relieves it), limit it. `step_ns`: the step without a recorder, mean of
    the ranks; a finding on one rank with a longer window may expect more. `real_share` of the recorded time is there
    without a recorder, at most `most_real_share`; `contended_share` of it others' use of the cores may explain.
    `of_symptoms`: what a fix of its symptoms saves. `added_host_ns`: ns that the fix adds to the host's time, at most
    and likely. `limited_by_host`: that makes the step longer, or it may,
    and the likely saving is lost in noise. `spread`: of measured savings around likely ones; None: not known.
    `about_ns`: the time of a device's step that the fix is about, beyond which no spread goes (where no replay shortens
    it, and of a rule that is not ours, its high end); None without a GPU, where what runs behind a pause gets shorter
    as well (docs/savings.md).
    """

    expected: Saving
    bound_ns: int | None = None
    replayed: Saving | None = None
    unhidden_share: float = 1.0
    host_spare_ns: int | None = None
    noise_ns: float = 0.0
    step_ns: int | None = None
    real_share: float = 1.0
    most_real_share: float = 1.0
    contended_share: float = 0.0
    of_symptoms: Saving = field(default_factory=lambda: Saving(0, 0, 0))
    added_host_ns: tuple[int, int] = (0, 0)
    limited_by_host: bool = False
    spread: SavingSpread | None = None
    about_ns: int | None = None

    @property
    def ns(self) -> Saving:
        """What a fix saves: no less than one of its symptoms' does, as far as they are about the same time."""
        return self.calibrated(self.spread)

    @property
    def own(self) -> Saving:
        """The saving after all limits. Its high end is limited by physics alone: a loader can be made faster, too."""
        return list(self._limited(self.spread))[-1].left

    def calibrated(self, spread: SavingSpread | None) -> Saving:
        """The saving with its range widened by this spread of measured savings; None: as expected or simulated."""
        return list(self._all(spread))[-1].left

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """What limited or widened the saving, in the order of application, each with what it left; () for nothing."""
        limited = list(self._all(self.spread))
        before = [self.expected, *(each.left for each in limited)]
        return tuple(each for each, left in zip(limited, before, strict=False) if each.left != left)

    @property
    def _most_ns(self) -> int:
        """The most that physics allow, in ns: it leaves the remaining work what it needs, and exceeds no step."""
        share = max(self.real_share, self.most_real_share)
        bound_ns = [] if self.bound_ns is None else [round(self.bound_ns * share)]
        step_ns = [] if self.step_ns is None else [max(int(self.step_ns - self.noise_ns), 0)]
        return min([*bound_ns, *step_ns], default=sys.maxsize)

    @property
    def is_in_vain(self) -> bool:
        """Would the fix take time away, but none off the step?"""
        return bool(self.expected.likely) and not self.ns.high

    def _all(self, spread: SavingSpread | None) -> Iterator[Bound]:
        limited = list(self._limited(spread))
        yield from limited
        own = limited[-1].left
        under = self.of_symptoms.within(own.high)
        cases = ((own.low, under.low), (own.likely, under.likely), (own.high, under.high))
        yield Bound("symptoms", Saving(*map(max, cases)))

    def _limited(self, spread: SavingSpread | None) -> Iterator[Bound]:
        """Each limit in turn, with what it leaves of the saving; and the range that measured savings have."""
        if self.replayed is not None:
            yield Bound("replay", left := self.replayed)
        else:
            low, likely = (int(ns * self.unhidden_share) for ns in (self.expected.low, self.expected.likely))
            yield Bound("loader", left := Saving(low, likely, self.expected.high))
            yield Bound("host", left := self._left_by_host(left))
        if self.limited_by_host:
            yield Bound("casts", left := Saving(0, 0, left.high))
        if self.bound_ns is not None:
            yield Bound("physics", left := left.within(self.bound_ns))
        high = round(left.high * max(self.real_share, self.most_real_share))
        yield Bound("recorder", left := replace(left.scaled(self.real_share), high=high))
        # Waiting for a core strikes the training thread at random, in all that it does alike.
        yield Bound("contention", left := replace(left, low=round(left.low * (1 - self.contended_share))))
        if self.step_ns is not None:
            yield Bound("step", left := left.within(max(int(self.step_ns - self.noise_ns), 0)))
        if spread is not None and left.likely:
            about_ns = self._most_ns if self.about_ns is None else max(left.high, self.about_ns)
            yield Bound("calibration", left := spread.around(left, min(self._most_ns, about_ns)))
        low, likely, high = (ns if ns >= self.noise_ns else 0 for ns in (left.low, left.likely, left.high))
        yield Bound("noise", Saving(low, likely, high))

    def _left_by_host(self, left: Saving) -> Saving:
        """The saving limited by the host's spare time less its added work; the high end is not limited by it."""
        if self.host_spare_ns is None:
            return left
        at_most = [max(self.host_spare_ns - more_ns, 0) for more_ns in self.added_host_ns]
        low, likely = (min(ns, most) for ns, most in zip((left.low, left.likely), at_most, strict=True))
        return Saving(min(low, likely), likely, left.high)

    def longer_ns(self, case: int) -> int:
        """Ns a step by which the host's pace makes the step longer."""
        return 0 if self.host_spare_ns is None else max(self.added_host_ns[case] - self.host_spare_ns, 0)


def predicted_saving(rule: Rule, finding: Finding, run: Run, replay: RunReplay | None) -> PredictedSaving:
    """The saving of a finding with all that limits it in this run. `replay`: None where nothing can be simulated."""
    if finding.run_steps:  # between steps there is no recorder, and nothing to replay
        return PredictedSaving(finding.saving_ns_per_step)
    added_ns = added_host_ns(finding, run)
    spare_ns = run_spare_ns(run, of_window=any(added_ns)) if "host" in rule.hidden_by else None
    fix = None
    if replay is not None and finding.saving_ns_per_step.likely and replay.gives_saving(rule.action, finding):
        fix = replay.fix(rule.id, rule.action, finding)
    about_ns = None if host_places(run) else _about_ns(rule, finding, run)
    if rule.origin:  # measured savings are those of our rules: beyond it goes no further than its author says
        about_ns = finding.saving_ns_per_step.high
    saving = PredictedSaving(
        finding.saving_ns_per_step,
        finding.bound_ns,
        _replayed(rule, finding, replay, fix),
        unhidden_share(run) if "loader" in rule.hidden_by else 1.0,
        spare_ns,
        NOISE_SHARE * real_step_ns(run),
        real_step_ns(run),
        real_share(rule, finding, run),
        most_real_share(rule, finding, run),
        most_contended_share(run) if host_places(run) else 0.0,
        added_host_ns=added_ns,
        spread=spread_of(rule.category),
        about_ns=about_ns,
    )
    if not any(added_ns) or not finding.saving_ns_per_step.likely:
        return saving
    longer_ns = [replay.longer_ns(fix, case) if replay and fix else saving.longer_ns(case) for case in (0, 1)]
    lost = saving.ns.likely < rule.at.get("min_share_of_step", 0) * run.step_ns
    return replace(saving, limited_by_host=longer_ns[1] > saving.noise_ns or (lost and longer_ns[0] > saving.noise_ns))


def _about_ns(rule: Rule, finding: Finding, run: Run) -> int:
    """Ns of a device's step that the fix is about; of what no replay shortens, what the detector says at most."""
    if rule.action:
        return affected_ns(rule.action, finding, run)
    return max(finding.affected_ns, finding.saving_ns_per_step.high)


def added_host_ns(finding: Finding, run: Run) -> tuple[int, int]:
    """Ns a step that the fix adds to the host's time, at most and likely."""

    def added(place: Place, case: int) -> float:
        changes = finding.changes.get(place.rank_and_device)
        return float(changes.host_ns[case].sum()) if changes else 0.0

    at_most, likely = (run.mean(lambda place, case=case: added(place, case)) for case in (0, 1))  # type: ignore[misc]
    return at_most, likely


def as_predicted(finding: Finding, saving: PredictedSaving) -> Finding:
    """The finding in the situation that the prediction shows: its fix may make the step longer."""
    longer = finding.if_longer and saving.limited_by_host
    return replace(finding, situation=finding.if_longer) if longer else finding


def _replayed(rule: Rule, finding: Finding, replay: RunReplay | None, fix: SimulatedFix | None) -> Saving | None:
    """How much shorter the simulated step is; None where that cannot be simulated.

    A late rank that has no more to do than the others is still late in some steps, as each rank's steps differ. At most
    it is late in none: then the step takes what the others take.
    """
    if replay is None or fix is None:
        return None
    found, expected = replay.saving(fix), finding.saving_ns_per_step
    return replace(found, high=max(found.high, expected.likely)) if rule.action == "lateness" else found

"""By how much does a fix shorten the step? All that limits a saving is applied here, and nowhere else.

A detector expects that a fix takes some time away from the work that it is about. The step gets shorter by less:

```
replayed       the recorded step, simulated with the fix, shows what it waits for instead
else           a loader beside the training hides faster work on the device, and so does a host that is nearly the limit
always         only what is there without a recorder is saved, of the step more than noise remains, and what is less
               than noise is no saving
a cause        saves no less than what fixes a part of it
```
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from perfdoctor.metrics.accounting.real_time import most_real_share, real_share, real_step_ns
from perfdoctor.metrics.host.loader import unhidden_share
from perfdoctor.metrics.host.pace import run_spare_ns
from perfdoctor.model.run import Run
from perfdoctor.records.derivations import Bound
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.replay.what_if.savings import Replay
from perfdoctor.vocabulary.rulebook import Rule

#: Of the step. A replay comes as close to the steps it was made of, and no second run as close to the first: what is
#: less is noise, and no saving.
NOISE_SHARE = 0.001


@dataclass(frozen=True)
class PredictedSaving:
    """Ns per step. `expected`: what the detector expects a fix to take away; `bound_ns`: the most that physics allow.

    `replayed`: how much shorter the simulated step is, which knows loader and host; None where it cannot be simulated.
    Then `unhidden_share`, the share of steps in which no loader hides the saving, and `host_spare_ns`, the most that
    the host has to spare (None: not known, or the fix relieves the host), limit it. `step_ns`: all that there is, on
    the mean of the ranks; a finding on one rank with a longer window may expect more. All of this is as recorded, but
    `step_ns`, which is the step without a recorder, and `real_share` of the time is there without one, at most
    `most_real_share`. `of_symptoms`: what a fix of its symptoms saves.
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
    of_symptoms: Saving = field(default_factory=lambda: Saving(0, 0, 0))

    @property
    def ns(self) -> Saving:
        """What a fix saves: no less than one of its symptoms' does, as far as they are about the same time."""
        return list(self._all())[-1].left

    @property
    def own(self) -> Saving:
        """What remains of it. The most that it may be is limited by physics alone: a loader can be made faster, too."""
        return list(self._limited())[-1].left

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """What limited it, in the order in which it is applied, each with what it left; () where nothing did."""
        limited = list(self._all())
        before = [self.expected, *(each.left for each in limited)]
        return tuple(each for each, left in zip(limited, before, strict=False) if each.left != left)

    @property
    def is_in_vain(self) -> bool:
        """Would the fix take time away, but none off the step?"""
        return bool(self.expected.likely) and not self.ns.high

    def _all(self) -> Iterator[Bound]:
        yield from self._limited()
        yield Bound("symptoms", _no_less(self.own, self.of_symptoms.within(self.own.high)))

    def _limited(self) -> Iterator[Bound]:
        """Each limit in turn, with what it leaves of the saving."""
        if self.replayed is not None:
            yield Bound("replay", left := self.replayed)
        else:
            low, likely = (int(ns * self.unhidden_share) for ns in (self.expected.low, self.expected.likely))
            yield Bound("loader", left := Saving(low, likely, self.expected.high))
            most_ns = left.high if self.host_spare_ns is None else self.host_spare_ns
            yield Bound("host", left := Saving(min(left.low, most_ns), min(left.likely, most_ns), left.high))
        if self.bound_ns is not None:
            yield Bound("physics", left := left.within(self.bound_ns))
        high = round(left.high * max(self.real_share, self.most_real_share))
        yield Bound("recorder", left := replace(left.scaled(self.real_share), high=high))
        if self.step_ns is not None:
            yield Bound("step", left := left.within(max(int(self.step_ns - self.noise_ns), 0)))
        low, likely, high = (ns if ns >= self.noise_ns else 0 for ns in (left.low, left.likely, left.high))
        yield Bound("noise", Saving(low, likely, high))


def _no_less(one: Saving, other: Saving) -> Saving:
    return Saving(max(one.low, other.low), max(one.likely, other.likely), max(one.high, other.high))


def predicted_saving(rule: Rule, finding: Finding, run: Run, replay: Replay | None) -> PredictedSaving:
    """The saving of a finding with all that limits it in this run. `replay`: None where nothing can be simulated."""
    expected = finding.saving_ns_per_step
    return PredictedSaving(
        expected,
        finding.bound_ns,
        _replayed(rule, finding, replay),
        unhidden_share(run) if "loader" in rule.hidden_by else 1.0,
        run_spare_ns(run) if "host" in rule.hidden_by else None,
        NOISE_SHARE * real_step_ns(run),
        real_step_ns(run),
        real_share(rule, finding, run),
        most_real_share(rule, finding, run),
    )


def _replayed(rule: Rule, finding: Finding, replay: Replay | None) -> Saving | None:
    """How much shorter the simulated step is; None where that cannot be simulated.

    A late rank that has no more to do than the others is still late in some steps, as each rank's steps differ. At most
    it is late in none: then the step takes what the others take.
    """
    expected = finding.saving_ns_per_step
    if replay is None or not expected.likely or not replay.can_replay(rule.action, finding):
        return None
    found = replay.saving(replay.fix(rule.id, rule.action, finding))
    return replace(found, high=max(found.high, expected.likely)) if rule.action == "lateness" else found

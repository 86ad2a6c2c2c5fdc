"""In which order are the trials made, when is a treatment decided, and what is kept?

    scout        untreated, to know how long a start and a step take; caches are warm behind it
    rounds       the untreated program and each treatment that is undecided, once each, in random order
    control      untreated with moved parameters, where a treatment's losses differ
    together     rounds of the untreated program and the best treatments at once

Of a round each treated run and the untreated ones are a pair. Where several programs can be at work at once, those of a
round take turns of some steps each (recording/race.py): what changes a machine is the same for all of them. Elsewhere
they follow each other, and what changes from minute to minute is in the interval. There a pair during which other
programs used far more cores beside one run than beside the other is made once more.

The module is one state machine, from the scout to the result.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct, field

from perfdoctor.recording.treated_run import TrialReport
from perfdoctor.treatments import evidence, losses
from perfdoctor.treatments.at_once import steps_of_turn
from perfdoctor.treatments.choice import MISSING, Arm
from perfdoctor.treatments.evidence import Change
from perfdoctor.treatments.records import (
    LossDifference,
    ShareRange,
    Together,
    TreatResult,
    TrialRun,
    TrialVerdict,
    TriedFix,
)
from perfdoctor.treatments.step_times import log_ratio, mean_ns

#: What saves less is not worth a line in a program that others read, nor the trials to prove it.
MATTERS = 0.05
#: Fewer pairs have no spread to speak of; with more, an effect that is still hidden is below what matters as a rule.
_FEWEST, _MOST = 3, 16
#: A run is long enough for the rule that leaves its warm-up out, and for how steps differ; longer ones than some
#: seconds say little more, as runs differ by more than the mean of their steps.
_FEWEST_STEPS, _MOST_STEPS, _STEPPING_S, _LONGEST_S = 20, 2000, 2.0, 10.0
#: Turns of a run. Single ones differ by 10 to 25 % on a busy machine, and what a process has by chance for all its life
#: (where its memory lies) makes 3 to 5 %: the mean of 64 is as sure as that, and more of them would say little more.
_TURNS = 64
#: A treated run may take so many times as long as the untreated one; its start too, and so much more.
_SLOWER, _LONGER_START, _SPARE_S = 4.0, 3.0, 15.0
#: Of the cores: a pair is disturbed where others used so much more beside one of its runs.
_DISTURBED = 0.5
_MOST_REPEATS = 2
#: One untreated run a round for so many treated ones.
_TREATED_EACH = 4
#: Of the budget is left for the best fixes together.
_TOGETHER = 0.25
_NOTHING = "the program has nothing that it changes"
_SPENT = "the budget was spent"


class Runs(Protocol):
    """Makes one trial of these arms; of `dry` ones it is counted what they would change.

    KeyboardInterrupt after Ctrl-C.
    """

    def __call__(
        self,
        arms: Sequence[Arm],
        *,
        end_after: int,
        limit_s: float | None,
        nudge: bool = False,
        dry: Sequence[Arm] = (),
    ) -> TrialReport: ...


class Races(Protocol):
    """Makes trials of several lists of arms at once, in turns of so many steps. KeyboardInterrupt after Ctrl-C."""

    def __call__(
        self, many: Sequence[Sequence[Arm]], *, steps: int, end_after: int, limits_s: Sequence[float | None]
    ) -> list[TrialReport]: ...


class Failed(Exception):  # noqa: N818 of the program, not of ours
    """The untreated program failed, twice."""

    def __init__(self, report: TrialReport) -> None:
        super().__init__(report.why)
        self.report = report


class _Spent(Exception):  # noqa: N818 no error
    """The budget was spent before a run, or within it."""


class _Case(Struct):
    """An arm, or several at once, and what its trials showed so far."""

    arms: tuple[Arm, ...]
    ratios: list[float] = field(default_factory=list)
    reports: list[TrialReport] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    disturbed: int = 0
    verdict: TrialVerdict | None = None
    why: str = ""
    change: Change | None = None

    @property
    def items(self) -> float:
        return math.prod(each.treatment.items for each in self.arms)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.arms)


class Session:
    """One `perfdoctor treat`. `stops`: runs end after enough steps.

    `races`: makes trials at once, if `most_at_once` says that more than one may be; None: never.
    """

    def __init__(
        self, runs: Runs, arms: Sequence[Arm], *, budget_s: float, cores: int, seed: int = 0, stops: bool = True,
        accepts_numerics: bool = False, say: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic, races: Races | None = None,
        most_at_once: Callable[[TrialReport], tuple[int, str]] = lambda _: (1, ""),
    ) -> None:  # fmt: skip
        self.runs, self.say, self.clock, self.cores = runs, say, clock, cores
        self.cases = [_Case((arm,)) for arm in arms]
        self.waiting: list[_Case] = []  # of these, those that there was no room for yet
        self.alpha = evidence.level(len(self.cases))
        self.begun, self.budget_s = clock(), budget_s
        self.ends = self.begun + budget_s
        self.random = random.Random(seed)  # noqa: S311 an order of trials
        self.stops, self.accepts_numerics = stops, accepts_numerics
        self.races, self.most_at_once = races, most_at_once
        self.at_once, self.why_alone, self.steps_of_turn = 1, "", 0
        self.end_after = 0
        self.untreated: list[TrialReport] = []
        self.together: _Case | None = None
        self.control: TrialReport | None = None
        self.why_uncontrolled = ""
        self.made: list[TrialRun] = []
        self.scouted: TrialReport | None = None
        self.longest_s = 0.0
        self.is_interrupted = False
        self.why_ended = _SPENT
        self.left_out: dict[str, str] = {}
        self.notes: list[str] = []
        self.is_begun = False

    # --- the way through ---

    def go(self) -> None:
        """Make all trials. Raises Failed where the untreated program fails; what was known by then can be read."""
        try:
            self._scout()
            # What is left of the budget is for the control, and for the best fixes together.
            left_s = self.budget_s * _TOGETHER if len(self.cases) > 1 else min(self.longest_s, self.budget_s / 2)
            self._rounds(self.cases, self.ends - left_s, queues=True)
            self._judge_losses()
            self._try_together()
        except KeyboardInterrupt:
            self.is_interrupted, self.why_ended = True, "it was interrupted"
        except _Spent:
            pass
        except Failed as failed:
            self.why_ended = f"the program failed without any fix: {failed.report.why}"
            self.notes.append(f"T{self.why_ended[1:]}. This is what was known by then.")
            self._conclude()
            raise
        self._conclude()

    def _scout(self) -> None:
        end_after = _FEWEST_STEPS if self.stops else 0
        dry = [arm for case in self.cases for arm in case.arms if arm.treatment.by_arguments]
        for each in (dry, []):  # counting what they would change should not fail; the program decides
            left_s = self.ends - self.clock()  # one that hangs would keep the command for ever
            report = self.runs((), end_after=end_after, limit_s=max(left_s, _SPARE_S), dry=each)
            self._note((), report)
            if not report.why:
                break
        else:
            raise Failed(report)
        self.scouted = report
        if max(report.ranks, report.here) == 1:
            self._leave_out_those_of_ranks()
        for case in self.cases:
            case.arms = tuple(arm.of_ranks(max(report.here, 1)) for arm in case.arms)
            if report.touched.get(case.names[0]) == 0:
                case.verdict, case.why = "nothing to change", _NOTHING
        step_s = mean_ns(report) / 1e9
        self.at_once, self.why_alone = self.most_at_once(report)
        self.steps_of_turn = steps_of_turn(report.lengths_ns)
        wanted_s = max(report.start_s, _STEPPING_S) if self.at_once == 1 else _TURNS * self.steps_of_turn * step_s
        if self.stops and step_s:
            self.end_after = int(min(max(min(wanted_s, _LONGEST_S) / step_s, _FEWEST_STEPS), _MOST_STEPS))
        passed_s = float(np.mean(report.lengths_ns or [0])) / 1e9
        self.longest_s = report.start_s + (self.end_after or len(report.lengths_ns)) * passed_s
        self.say(f"a start takes {report.start_s:.1f} s and a step {step_s * 1e3:.3g} ms")

    def _leave_out_those_of_ranks(self) -> None:
        """Before the first run nobody knows how many ranks a command starts that is not diagnosed."""
        for case in list(self.cases):
            if any("ranks" in arm.treatment.needs for arm in case.arms):
                self.cases.remove(case)
                self.left_out[case.names[0]] = MISSING["ranks"]

    def _fit(self, deadline: float) -> None:
        """Let those wait, from the end, for whose fewest pairs there is no room until then."""
        left_s, each_s = deadline - self.clock(), self._expected_s() if self.untreated else self.longest_s
        undecided = [each for each in self.cases if each.verdict is None]
        live = [each for each in undecided if each not in self.waiting] if self.is_begun else []
        count = len(live)
        while count < len(undecided):
            runs = count + 1 + self._copies(count + 1)
            if runs * each_s * (_FEWEST + 1) > left_s and (count or self.is_begun):  # the first one of all may begin
                break
            count += 1
        queue = [each for each in undecided if each not in live]
        self.waiting = queue[count - len(live) :]

    def _rounds(self, cases: Sequence[_Case], deadline: float, *, queues: bool = False) -> None:
        while True:
            if queues:
                self._fit(deadline)
            live = [each for each in cases if each.verdict is None and each not in self.waiting]
            if not live:
                break
            expected_s = self._expected_s() * (self._copies(len(live)) + len(live))
            if self.clock() + expected_s > deadline and self.is_begun:
                if self.clock() + self._expected_s() * 2 > deadline or len(live) == 1:
                    break
                room = int((deadline - self.clock()) / self._expected_s()) - 1
                live = sorted(live, key=self._promise)[: max(room, 1)]
            self._round(live)
            # Whether a treatment touches the program at all, or fails, says nothing of times: it is no hypothesis.
            tried = [each for each in self.cases if each.verdict not in ("nothing to change", "failed")]
            self.alpha = min(self.alpha, evidence.level(len(tried))) if self.is_begun else evidence.level(len(tried))
            self.is_begun = True
            for case in live:
                self._decide(case)

    def _promise(self, case: _Case) -> float:
        """What is likeliest to be kept goes first where not all can go on."""
        return case.change.likely if case.change else 0.0

    def _copies(self, live: int) -> int:
        """How many untreated runs a round of so many treated ones has."""
        return 1 + live // _TREATED_EACH if self.at_once == 1 else math.ceil(live / (self.at_once - 1))

    def _round(self, live: Sequence[_Case]) -> None:
        left = self.random.sample(live, len(live))
        while left and self.at_once > 1:
            group, left = left[: self.at_once - 1], left[self.at_once - 1 :]
            self._race(group)
        if left:
            self._in_turn(left)

    def _race(self, group: Sequence[_Case]) -> None:
        """Run these and the untreated program at once. What fails then is run alone, to see who is to blame."""
        assert self.races is not None
        many = [(), *(case.arms for case in group)]
        self._check_budget()
        limits_s = [self._limit_s(arms) for arms in many]
        left_s = max((self.ends - self.clock()) / len(many), _SPARE_S)  # each runs while the others are stopped
        capped_s = [min(each, left_s) for each in limits_s]
        reports = self.races(many, steps=self.steps_of_turn, end_after=self.end_after, limits_s=capped_s)
        spent = [r.is_cut and bool(r.why) and left_s < limit_s for r, limit_s in zip(reports, limits_s, strict=True)]
        for arms, report in zip(many, reports, strict=True):
            self._note(arms, report)
        plain, *treated = reports
        if spent[0]:
            raise _Spent
        if plain.why:
            self._run_alone(f"untreated, beside others: {plain.why}")
            return
        self.untreated.append(plain)
        good: list[tuple[_Case, TrialReport]] = []
        try:
            for case, report, is_spent in zip(group, treated, spent[1:], strict=True):
                if not is_spent and self._is_good(case, report):
                    good.append((case, report))
        finally:
            self._pair([plain], good)
        if any(spent):
            raise _Spent

    def _is_good(self, case: _Case, report: TrialReport) -> bool:
        """Is this run at once with others worth a pair? One that failed has failed where it fails alone, too."""
        if not report.why:
            return self._touches(case, report)
        made = len(case.failures)
        self._fails(case, report)
        if case.verdict is None and self._run_treated(case) is not None:
            del case.failures[made:]
            self._run_alone(f"{' + '.join(case.names)}, beside others: {report.why}")
        return False

    def _run_alone(self, why: str) -> None:
        """Start no more programs at once."""
        self.at_once, self.why_alone = 1, why

    def _in_turn(self, live: Sequence[_Case]) -> None:
        order: list[_Case | None] = [*live, *([None] * self._copies(len(live)))]
        self.random.shuffle(order)
        plain: list[TrialReport] = []
        treated: list[tuple[_Case, TrialReport]] = []
        try:
            for case in order:
                report = self._run_untreated() if case is None else self._run_treated(case)
                if report is None:
                    continue
                if case is None:
                    plain.append(report)
                else:
                    treated.append((case, report))
        finally:
            if plain:
                self._pair(plain, treated)

    def _pair(self, plain: Sequence[TrialReport], treated: Iterable[tuple[_Case, TrialReport]]) -> None:
        others = float(np.mean([each.others for each in plain]))
        for case, report in treated:
            case.reports.append(report)
            if abs(report.others - others) > _DISTURBED * self.cores and case.disturbed < _MOST_REPEATS:
                case.disturbed += 1
                continue
            ratios = [log_ratio(report, each) for each in plain]
            case.ratios.append(float(np.mean(ratios)) - math.log(case.items))

    def _run_untreated(self) -> TrialReport | None:
        for _ in range(2):
            report = self._made(())
            if not report.why:
                self.untreated.append(report)
                return report
        raise Failed(report)

    def _run_treated(self, case: _Case) -> TrialReport | None:
        """One run; None where it failed, or does nothing."""
        report = self._made(case.arms)
        if report.why:
            self._fails(case, report)
            return None
        return report if self._touches(case, report) else None

    def _fails(self, case: _Case, report: TrialReport) -> None:
        """What fails twice, or hangs once behind its start, or could not be applied, has failed."""
        case.failures.append(report.why)
        hangs = report.is_cut and (self.at_once == 1 or bool(report.lengths_ns))
        if len(case.failures) > 1 or hangs or "could not be applied" in report.why:
            case.verdict, case.why = "failed", report.why

    def _touches(self, case: _Case, report: TrialReport) -> bool:
        assert self.scouted is not None
        is_touched = any(report.touched.values()) or report.threads != self.scouted.threads
        if not is_touched and len(case.arms) == 1:
            case.verdict, case.why = "nothing to change", _NOTHING
            return False
        return True

    def _made(self, arms: Sequence[Arm], *, nudge: bool = False) -> TrialReport:
        """One run alone. One that the budget ends did not fail."""
        self._check_budget()
        limit_s, left_s = self._limit_s(arms), max(self.ends - self.clock(), _SPARE_S)
        report = self.runs(arms, end_after=self.end_after, limit_s=min(limit_s, left_s), nudge=nudge)
        self._note(arms, report, nudge=nudge)
        if report.is_cut and report.why and left_s < limit_s:
            raise _Spent
        return report

    def _check_budget(self) -> None:
        """Begin nothing behind the end of the budget, but for a first pair."""
        has_pair = bool(self.untreated) and any(each.fixes and not each.why for each in self.made)
        if self.clock() >= self.ends and (self.is_begun or has_pair):
            raise _Spent

    def _note(self, arms: Sequence[Arm], report: TrialReport, *, nudge: bool = False) -> None:
        step_ns = mean_ns(report) if not report.why else 0.0
        names = tuple(each.name for each in arms)
        self.made.append(
            TrialRun(
                len(self.made) + 1, names, step_ns, len(report.lengths_ns), report.start_s, report.wall_s,
                report.others, report.host_bytes, report.gpu_bytes, why=report.why,
            )
        )  # fmt: skip
        what = " + ".join(names) or ("untreated, moved by roundings" if nudge else "untreated")
        self.say(f"trial {len(self.made)}: {what}: {report.why or f'{step_ns / 1e6:.3g} ms'}")

    def _expected_s(self) -> float:
        """How long a trial takes: as the last ones did."""
        walls = [each.wall_s for each in self.made[-8:] if not each.why]
        return float(np.mean(walls)) if walls else 10.0

    def _limit_s(self, arms: Sequence[Arm]) -> float:
        """So long a run may take, by those that were made."""
        assert self.scouted is not None
        starts_s = sum(each.treatment.starts_s for each in arms)
        slowest_s = max([self.scouted.start_s, *(each.start_s for each in self.untreated)])
        stepping_s = max([self.longest_s, *(sum(each.lengths_ns) / 1e9 for each in self.untreated)])
        return _LONGER_START * slowest_s + _SLOWER * stepping_s + starts_s + _SPARE_S

    # --- decisions ---

    def _decide(self, case: _Case) -> None:
        """Set the verdict as soon as the pairs so far are enough for one."""
        case.change = evidence.change(case.ratios, self.alpha)
        if case.verdict is None and case.change is not None:
            case.verdict = _verdict(case.change)
            if case.verdict == "not decided":
                case.why = f"{case.change.pairs} pairs differ by more than the fix changes"

    def _judge_losses(self) -> None:
        """Make the control where losses differ that should not."""
        plain = [each.losses for each in self.untreated]
        for case in self.cases:
            treated = [each.losses for each in case.reports]
            is_declared = any(each.treatment.changes_numerics for each in case.arms)
            if not is_declared and losses.compared(plain, treated, None).verdict == "differs":
                if self.clock() + self._expected_s() <= self.ends:
                    self._make_control()
                return

    def _make_control(self) -> None:
        control = self._made((), nudge=True)
        if control.why:
            self.why_uncontrolled = f"the control failed: {control.why}"
        elif not control.nudged:
            self.why_uncontrolled = "in the control no parameter could be moved"
        else:
            self.control = control

    def loss(self, case: _Case) -> LossDifference:
        """The losses of a case against the untreated ones."""
        if any(each.treatment.other_training for each in case.arms):
            return LossDifference("another training")
        control = self.control.losses if self.control is not None else None
        found = losses.compared([e.losses for e in self.untreated], [e.losses for e in case.reports], control)
        sums = [{each.checksum for each in side if each.checksum} for side in (self.untreated, case.reports)]
        if all(sums) and len(sums[0]) == 1:
            return LossDifference(
                found.verdict, found.why, found.losses, found.largest, found.own, found.carried, sums[0] == sums[1]
            )
        return found

    def _not_finite_from(self, case: _Case) -> int:
        """The first of the losses that a treatment leaves without numbers, counted from 1; 0: it has them.

        No other precision and no larger batch is meant to do that.
        """
        return losses.not_finite_from([each.losses for each in self.untreated], [each.losses for each in case.reports])

    def _conclude(self) -> None:
        tried = [case for case in self.cases if case.verdict not in ("nothing to change", "failed")]
        undecided = max(sum(case.verdict is None for case in tried), 1)
        reserve = _TOGETHER if len(tried) > 1 else 0.0
        for case in self.waiting:
            self.left_out[case.names[0]] = "the budget has no room for it: --budget, or --fix"
            self.cases.remove(case)
        self.waiting = []
        for case in (*self.cases, *([self.together] if self.together else [])):
            case.change = evidence.change(case.ratios, self.alpha)
            if case.verdict is None:
                case.verdict = "not decided" if not case.failures or case.ratios else "failed"
                why = case.failures[-1] if case.failures else self._why_undecided(case, undecided, reserve)
                case.why = case.why or why
            if case.verdict in ("keep", "not decided", "no effect") and case.reports:
                self._judge_numbers(case)

    def _why_undecided(self, case: _Case, undecided: int, reserve: float) -> str:
        """Why the trials ended, and which budget would decide a case if its further pairs were as those so far, in
        rounds of all that are undecided; `reserve`: the share of it that is left for the best fixes together.
        """
        made = len(case.ratios)
        if self.why_ended != _SPENT:
            return self.why_ended
        why, wanted = f"{_SPENT} after {made} pair{'' if made == 1 else 's'}", self._pairs_wanted(case)
        if wanted is None:
            return f"{why}, which differ by more than the fix changes"
        rounds_s = (wanted - made) * (undecided + self._copies(undecided)) * self._expected_s()
        budget_s = (self.clock() - self.begun + rounds_s) / (1 - reserve) + self.longest_s
        tens = math.ceil(max(budget_s, self.budget_s + 1) / 10)
        return f"{why}; {'about' if made > 1 else 'at least'} {wanted} are needed: --budget {tens * 10}s"

    def _pairs_wanted(self, case: _Case) -> int | None:
        """How many pairs as those so far would decide a case; None: the most that are made would not."""
        made = len(case.ratios)
        if made < 2:
            return _FEWEST
        for pairs in range(max(made + 1, _FEWEST), _MOST + 1):
            expected = evidence.change_of_more(case.ratios, pairs, self.alpha)
            if expected is not None and _verdict(expected) not in (None, "not decided"):
                return pairs
        return None

    def _judge_numbers(self, case: _Case) -> None:
        is_declared = any(each.treatment.changes_numerics for each in case.arms)
        found, first_lost = self.loss(case), self._not_finite_from(case)
        if first_lost:
            case.verdict, case.why = "changes the numbers", f"losses are not numbers from loss {first_lost} on"
        elif is_declared:
            if case.verdict == "keep" and not self.accepts_numerics:
                case.verdict = "changes the numbers"
                case.why = "another training" if found.verdict == "another training" else "it is another precision"
        elif found.verdict == "differs" and self.control is None:
            # Whether it is more than roundings is what the control would have shown.
            if case.verdict == "keep":
                why = self.why_uncontrolled or f"for a control {self.why_ended}"
                case.verdict, case.why = "not decided", f"losses differ {found.why}; {why}"
        elif found.verdict == "differs":
            case.verdict, case.why = "changes the numbers", f"losses differ {found.why}"

    # --- together ---

    def _kept(self) -> list[_Case]:
        """The treatments that save time and compute the same, the best of each group, the best first."""
        kept: dict[str, _Case] = {}
        for case in sorted(self.cases, key=lambda each: each.change.likely if each.change else 0.0):
            is_declared = any(each.treatment.changes_numerics for each in case.arms)
            is_same = self.accepts_numerics if is_declared else self.loss(case).verdict != "differs"
            if case.verdict == "keep" and is_same and not self._not_finite_from(case):
                kept.setdefault(case.arms[0].treatment.group or case.names[0], case)
        return list(kept.values())

    def _try_together(self) -> None:
        kept = self._kept()
        if len(kept) < 2:
            return
        self.together = _Case(tuple(arm for case in kept for arm in case.arms))
        self._rounds([self.together], self.ends)

    def best(self) -> Together | None:
        """What to do: all that is kept at once, or the best one where that was not shown to be better."""
        kept = self._kept()
        if not kept:
            return None
        single = kept[0]
        if self.together is None or self.together.verdict != "keep" or not self.together.change:
            why = "" if self.together is None else f"together: {self.together.why or self.together.verdict}"
            return Together(single.names, _saved(single.change), len(single.ratios), why, self.loss(single))
        if single.change and single.change.likely < self.together.change.likely:
            return Together(
                single.names, _saved(single.change), len(single.ratios),
                f"together they save {-self.together.change.likely:.0%}", self.loss(single),
            )  # fmt: skip
        return Together(
            self.together.names, _saved(self.together.change), len(self.together.ratios), "", self.loss(self.together)
        )

    # --- the result ---

    def result(self) -> TreatResult:
        """All that is known now."""
        means = [mean_ns(each) for each in self.untreated]
        first = self.scouted or TrialReport()
        return TreatResult(
            torch=first.torch, cores=self.cores, ranks=first.ranks,
            parameter_bytes=first.parameter_bytes,
            untreated_ns=float(np.exp(np.mean(np.log(means)))) if means else 0.0,
            steps_per_run=self.end_after, level=self.alpha, seconds=self.clock() - self.begun, budget_s=self.budget_s,
            is_interrupted=self.is_interrupted, rows=[self._row(each) for each in self.cases], together=self.best(),
            left_out=self.left_out, runs=self.made, steps_of_turn=self.steps_of_turn if self.at_once > 1 else 0,
            why_alone=self.why_alone, notes=self.notes,
        )  # fmt: skip

    def _row(self, case: _Case) -> TriedFix:
        arm = case.arms[0]
        plain = self.untreated or [TrialReport()]
        return TriedFix(
            arm.name, arm.treatment.title, arm.rule, case.verdict or "not decided", case.why, arm.promised,
            _saved(case.change) if case.change else None, len(case.ratios), case.disturbed, self._once_s(case),
            _most(plain, case.reports, "host_bytes"), _most(plain, case.reports, "gpu_bytes"), self.loss(case),
            arm.patch, arm.treatment.touches, arm.treatment.risk,
        )  # fmt: skip

    def _once_s(self, case: _Case) -> float:
        """How much longer the start and the first steps took, beyond the steady ones."""

        def once(report: TrialReport) -> float:
            step_ns = mean_ns(report)
            half = report.lengths_ns[: max(len(report.lengths_ns) // 2, 1)]
            return report.start_s + sum(max(each - step_ns, 0.0) for each in half) / 1e9

        if not case.reports or not self.untreated:
            return 0.0
        return float(np.median([once(e) for e in case.reports]) - np.median([once(e) for e in self.untreated]))


def _verdict(change: Change) -> TrialVerdict | None:
    """What these pairs are enough for; None: more of them are needed."""
    if change.pairs < _FEWEST:
        return None
    if change.high < 0:
        return "keep"
    if change.low > 0:
        return "slower"
    if change.low > -MATTERS and (change.likely <= MATTERS or change.pairs >= _MOST):
        return "no effect"  # what seems to be slower goes on until that is certain
    return "not decided" if change.pairs >= _MOST else None


def _saved(change: Change | None) -> ShareRange | None:
    """What a change of the step saves; an end that is not known is None."""
    if change is None:
        return None
    low = -change.high if math.isfinite(change.high) else None
    return ShareRange(low, -change.likely, -change.low if change.low > -1 else None)


def _most(plain: Sequence[TrialReport], treated: Sequence[TrialReport], name: str) -> tuple[int, int]:
    """Medians of what was held at most."""
    sides = [[getattr(each, name) for each in side] for side in (plain, treated)]
    return tuple(int(np.median(side)) if side else 0 for side in sides)  # type: ignore[return-value]

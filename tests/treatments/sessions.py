"""Sessions whose program is a formula: what a run takes, by its treatments, with noise; no process is started."""

from __future__ import annotations

import random

from perfdoctor.recording.treated_run import TrialReport
from perfdoctor.treatments.catalogue import Treatment
from perfdoctor.treatments.choice import Arm
from perfdoctor.treatments.session import Session

LOSSES = tuple(2.0 - 0.01 * n for n in range(30))


def arm(name, **facts):
    return Arm(Treatment(name, "", f"Do {name}", f"# {name}", **facts), {})


class FakeRuns:
    """`factors`: the step of each treatment over the untreated one; or a text, with which it fails."""

    def __init__(self, factors, *, noise=0.02, seed=0, step_ns=50_000_000, losses=None, others=None):
        self.factors, self.noise, self.step_ns = factors, noise, step_ns
        self.random, self.losses, self.others = random.Random(seed), losses or {}, others or (lambda _: 0.0)
        self.clock_s, self.made = 0.0, []

    def __call__(self, arms, *, end_after, limit_s, nudge=False, dry=()):
        names = [each.name for each in arms]
        self.made.append("+".join(names) or ("control" if nudge else "untreated"))
        self.clock_s += 10
        factor = 1.0
        for name in names:
            known = self.factors.get(name, 1.0)
            if isinstance(known, str):
                return TrialReport(why=known, code=1, is_cut="hangs" in known, wall_s=10)
            factor *= known or 1.0
        mean = self.step_ns * factor * self.random.lognormvariate(0, self.noise)
        lengths = tuple(round(mean * self.random.uniform(0.98, 1.02)) for _ in range(40))
        losses = self.losses.get(self.made[-1], LOSSES)
        touched = {each.name: int(self.factors.get(each.name) is not None) for each in (*arms, *dry)}
        return TrialReport(
            lengths,
            wall_s=10,
            start_s=3,
            touched=touched,
            losses=losses,
            others=self.others(len(self.made)),
            nudged=int(nudge),
        )


class FakeRaces:
    """Runs of these at once: `clashes` fail where they are not alone."""

    def __init__(self, runs, clashes=()):
        self.runs, self.clashes, self.groups = runs, clashes, []

    def __call__(self, many, *, steps, end_after, limits_s):
        self.groups.append(["+".join(each.name for each in arms) or "untreated" for arms in many])
        made = [self.runs(arms, end_after=end_after, limit_s=limit) for arms, limit in zip(many, limits_s, strict=True)]
        return [
            TrialReport(why="exit code 1: address in use", code=1, wall_s=10) if name in self.clashes else report
            for name, report in zip(self.groups[-1], made, strict=True)
        ]


def session(factors, arms=None, *, budget_s=3600.0, **facts):
    told = {name: facts.pop(name) for name in ("noise", "losses", "others", "seed") if name in facts}
    runs = FakeRuns(factors, **told)
    if "at_once" in facts:
        most = facts.pop("at_once")
        facts |= {"races": FakeRaces(runs, facts.pop("clashes", ())), "most_at_once": lambda _: (most, "")}
    made = Session(
        runs, arms or [arm(name) for name in factors], budget_s=budget_s, cores=2, clock=lambda: runs.clock_s, **facts
    )
    made.go()
    return made, runs


def verdicts(made):
    return {row.fix: row.verdict for row in made.result().rows}

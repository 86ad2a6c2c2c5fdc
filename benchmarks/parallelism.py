"""Is the right rank, stage or link named, and its cost right, in each kind of parallelism? Part of benchmarks/accuracy.py.

    python benchmarks/parallelism.py              all cases: a table, and every mistake
    python benchmarks/parallelism.py --only 'pipeline*' --ranks 8

Trainings of `fixtures/planted/parallelism.py`, in which one rank's device is slow, one stage has more to compute, one
link is slow or one rank's experts get more tokens, and healthy ones. What it costs is the difference to the same
training without it, played with the same luck; for a stage, to the training with as much work evenly spread.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import plant
from labels import all_findings
from planted.parallelism import SHAPES, STAGES, Slow
from training import Training, step_ns

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.records.findings import Advice
from perfdoctor.vocabulary.rulebook import load_rules

LEVELS, RANKS = (0.0, 0.05, 0.10, 0.25, 0.50), (8, 64)
#: Trainings of so many ranks take long to play: every second level shows enough.
_MANY = 64
#: A healthy training promises less, and a saving is right that is so near to what it costs.
SILENT_BELOW, RIGHT_WITHIN = 0.03, 0.15
#: What can be wrong, and in which kinds of parallelism.
_OF_PIPELINES = ("pipeline*",)
CULPRITS = {"rank": ("*",), "stage": _OF_PIPELINES, "link": _OF_PIPELINES, "tokens": ("experts",)}
#: What a report says where one rank is the reason.
_IS_CLEAR = "is the straggler"
_LATE = ("rank-skew", "pipeline-bubbles", "slow-links", "all-to-all-imbalance", "gpus-differ")


@dataclass(frozen=True)
class Case:
    shape: str
    culprit: str
    level: float
    ranks: int

    @property
    def number(self) -> int:
        """Which rank or stage it is: not the first, and another one at each level."""
        seed = LEVELS.index(self.level) + sorted(SHAPES).index(self.shape)
        return (3 + 5 * seed) % (STAGES if self.culprit == "stage" else self.ranks)

    def slow(self, dose: float) -> Slow:
        replicas = self.ranks // STAGES
        if self.culprit == "stage":
            return Slow(stage=self.number, by_stage=dose)
        if self.culprit == "link":
            one = self.number % (self.ranks - replicas)
            return Slow(link=(one, one + replicas), link_ns=dose * 1e6)
        if self.culprit == "tokens":
            return Slow(rank=self.number, tokens=dose)
        return Slow(rank=self.number, by_rank=dose)

    def trained(self, dose: float) -> Training:
        training = plant.trained(self.ranks, 1 + LEVELS.index(self.level))
        SHAPES[self.shape](training, self.slow(dose))
        return training

    @property
    def label(self) -> str:
        return (
            f"{self.shape}, {self.ranks} ranks, {self.culprit} {self.level:.0%}"
            if self.level
            else f"{self.shape}, {self.ranks} ranks, healthy"
        )


@dataclass(frozen=True)
class Result:
    case: Case
    #: What it costs, and what the finding that names it saves: shares of the step.
    cost: float
    named: str
    saved: float
    others: dict[str, float]

    @property
    def is_named(self) -> bool:
        return self.named == "right"

    @property
    def is_right(self) -> bool:
        return abs(self.saved / max(self.cost, 1e-9) - 1) <= RIGHT_WITHIN


def cases(only: str = "*", ranks: Sequence[int] = RANKS) -> list[Case]:
    found = []
    for shape in SHAPES:
        for size in ranks if fnmatch(shape, only) else ():
            found.append(Case(shape, "rank", 0.0, size))
            found += [
                Case(shape, culprit, level, size)
                for culprit, shapes in CULPRITS.items()
                if any(fnmatch(shape, each) for each in shapes)
                for level in LEVELS[1 if size < _MANY else 2 :: 1 if size < _MANY else 2]
            ]
    return found


def _planted(case: Case) -> tuple[Training, float]:
    """The training in which it costs about its level, and what it really costs, as a share of the step."""
    healthy = step_ns(case.trained(0.0).play())
    dose, cost = case.level, 0.0
    for _ in range(4 if case.level else 0):
        cost = 1 - healthy / step_ns(case.trained(dose).play())
        if abs(cost / case.level - 1) < 0.1:
            break
        dose *= min(max(case.level / (1 - case.level) / max(cost / (1 - cost), 1e-3), 0.3), 4.0)
    training = case.trained(dose)
    return training, 1 - healthy / step_ns(case.trained(dose).play()) if case.level else 0.0


def _names(case: Case, finding: Advice) -> bool:
    """Does this finding name what was planted?"""
    values, slow = finding.values, case.slow(1.0)
    if case.culprit == "stage":
        return (
            finding.rule == "pipeline-bubbles" and values.get("heavy_rank", -1) // (case.ranks // STAGES) == slow.stage
        )
    if case.culprit == "link":
        return finding.rule == "slow-links" and values.get("members") in {
            f"{slow.link[0]}-{slow.link[1]}", f"{slow.link[0]}, {slow.link[1]}"
        }  # fmt: skip
    if case.culprit == "tokens" and finding.rule == "all-to-all-imbalance":
        return values.get("loaded_rank") == slow.rank
    return finding.rule == "rank-skew" and values.get("late_rank") == slow.rank and _IS_CLEAR in finding.summary


def judge(case: Case) -> Result:
    training, cost = _planted(case)
    with tempfile.TemporaryDirectory() as scratch:
        folder = plant.write_kineto(training.play(), Path(scratch) / "kineto")
        diagnosis = diagnose(read(plant.paths(folder)), list(load_rules().values()))
    base = max(diagnosis.base_ns, 1)
    findings = [each for each in all_findings(diagnosis) if each.rule in _LATE]
    found = {each.rule: each.saving_ns_per_step.likely / base for each in findings}
    right = [each for each in findings if case.level and _names(case, each)]
    named = "right" if right else next((_told(each) for each in findings if each.rule == "rank-skew"), "nothing")
    saved = max((each.saving_ns_per_step.likely / base for each in right), default=0.0)
    return Result(case, cost, named, saved, found)


def _told(finding: Advice) -> str:
    clear = "clear" if _IS_CLEAR in finding.summary else "not clear"
    return f"rank {finding.values.get('late_rank')} ({clear})"


def judge_all(some: Sequence[Case]) -> list[Result]:
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 2)) as pool:
        return list(pool.map(judge, some))


def section(results: Sequence[Result]) -> Iterator[str]:
    """Lines of docs/accuracy.md."""
    yield "| parallelism | ranks | wrong is | named | saving within 15 % | healthy ones silent |"
    yield "| --- | ---: | --- | ---: | ---: | ---: |"
    healthy = {(each.case.shape, each.case.ranks): each for each in results if not each.case.level}
    groups: dict[tuple[str, int, str], list[Result]] = {}
    for each in results:
        if each.case.level:
            groups.setdefault((each.case.shape, each.case.ranks, each.case.culprit), []).append(each)
    for (shape, ranks, culprit), own in groups.items():
        named = [each for each in own if each.is_named]
        silent = "yes" if _is_silent(healthy[shape, ranks]) else "no"
        right = sum(each.is_right for each in named)
        yield f"| {shape} | {ranks} | {culprit} | {len(named)} of {len(own)} | {right} of {len(named)} | {silent} |"
    faulty = [each for each in results if each.case.level]
    named = [each for each in faulty if each.is_named]
    yield ""
    yield (
        f"Named: {len(named)} of {len(faulty)}; their saving is within {RIGHT_WITHIN:.0%} of what it costs in "
        f"{sum(each.is_right for each in named)}. Healthy and silent: {sum(map(_is_silent, healthy.values()))} of {len(healthy)}.\n"
    )
    yield from (f"* {text}" for text in mistakes(results))


def short(results: Sequence[Result], least: float) -> Iterator[str]:
    """What is below what is promised, which is `least` of the faulty ones named."""
    faulty = [each for each in results if each.case.level]
    named = sum(each.is_named for each in faulty)
    if named < least * len(faulty):
        yield f"kinds of parallelism: {named} of {len(faulty)} named"
    yield from (
        f"kinds of parallelism: {each.case.label} is not silent"
        for each in results
        if not each.case.level and not _is_silent(each)
    )


def _is_silent(healthy: Result) -> bool:
    return all(share < SILENT_BELOW for rule, share in healthy.others.items() if rule != "pipeline-bubbles")


def mistakes(results: Sequence[Result]) -> Iterator[str]:
    for each in results:
        found = ", ".join(f"{rule} {share:.1%}" for rule, share in each.others.items())
        if not each.case.level:
            if not _is_silent(each):
                yield f"{each.case.label}: {found}"
        elif not each.is_named:
            yield f"{each.case.label}, which costs {each.cost:.1%}: {each.named} is named ({found})"
        elif not each.is_right:
            yield f"{each.case.label}, which costs {each.cost:.1%}: saves {each.saved:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="a kind of parallelism, with *")
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--culprit", action="append")
    parser.add_argument("--level", type=float, action="append")
    asked = parser.parse_args()
    some = [
        case
        for case in cases(asked.only, asked.ranks or RANKS)
        if (not asked.culprit or not case.level or case.culprit in asked.culprit)
        and (not asked.level or case.level in (0.0, *asked.level))
    ]
    print("\n".join(section(judge_all(some))))


if __name__ == "__main__":
    main()

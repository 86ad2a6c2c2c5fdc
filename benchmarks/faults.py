"""How often is a planted fault found, and how often is one found that was not planted?

Each case of fixtures/plant.py is written in both forms, read back by the readers and diagnosed. A rule is *found* where
it is among the findings, symptoms too; a finding is a *false one* where it promises 3 % of the step or more, and neither
was planted nor follows from what was. A rule that only informs promises nothing: planted, it must be found at every
level, and where it is found though it was not planted, that is a false one. Some healthy trainings look faulty.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import plant
from labels import all_findings

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.savings import Derivation
from perfdoctor.vocabulary.rulebook import Rule, load_rules

LEVELS = (0.01, 0.03, 0.05, 0.10, 0.40)
FORMS = ("nsys", "kineto")
#: A promise of less is no false finding: nobody would act on it.
FALSE_FROM = 0.03
#: The parts of both forms may differ by this share of the window.
SAME_WITHIN = 0.001
_WRITERS = {"nsys": plant.write_nsys, "kineto": plant.write_kineto}


@dataclass(frozen=True)
class Case:
    """Shares of a step that are planted, by rule; none in a healthy training."""

    shares: Mapping[str, float]
    ranks: int = 1
    seed: int = 0
    forms: Sequence[str] = FORMS
    #: What makes a healthy training look faulty: see planted/twins.py.
    twin: str = ""

    @property
    def label(self) -> str:
        faults = " + ".join(f"{rule} {share:.0%}" for rule, share in self.shares.items()) or "healthy"
        faults += f" with {self.twin}" if self.twin else ""
        return f"{faults}, {self.ranks} rank{'s' * (self.ranks > 1)}, seed {self.seed}"

    @property
    def command(self) -> str:
        faults = " ".join(f"{rule}={share}" for rule, share in self.shares.items())
        twin = f"--twin {self.twin} " if self.twin else ""
        return f"python fixtures/plant.py {faults} {twin}--ranks {self.ranks} --seed {self.seed} -o DIR".replace(
            "  ", " "
        )


@dataclass(frozen=True)
class Result:
    """What was found in one form of a case: shares of the step that are promised, by rule."""

    case: Case
    form: str
    cost: Mapping[str, float]
    found: Mapping[str, float]
    first: str
    #: Findings that the report lists as symptoms of another one.
    under: Mapping[str, str]
    #: Rules that could not look, or failed.
    unable: Mapping[str, str]
    parts: tuple[float, ...]
    #: How the savings of these findings were computed.
    derived: Mapping[str, Derivation] = field(default_factory=dict)

    @property
    def expected(self) -> frozenset[str]:
        """Planted, or following from it."""
        return frozenset(self.cost).union(*(plant.FAULTS[rule].also for rule in self.cost))

    @property
    def asked(self) -> dict[str, float]:
        """The planted faults that must be found here, with their level: in pairs one may hide behind the other."""
        shares = self.case.shares.items()
        given = {rule: level for rule, level in shares if self.form in plant.FAULTS[rule].forms}
        return {
            rule: level for rule, level in given.items() if plant.FAULTS[rule].informs or self.cost[rule] >= 0.8 * level
        }

    @property
    def false(self) -> dict[str, float]:
        right = self.expected | {rule for rule, cause in self.under.items() if cause in self.expected}
        return {
            rule: share
            for rule, share in self.found.items()
            if rule not in right and (share >= FALSE_FROM or _promises_nothing(rule))
        }

    @property
    def _by_cost(self) -> list[tuple[float, str]]:
        return sorted(((cost * plant.FAULTS[rule].fixable, rule) for rule, cost in self.cost.items()), reverse=True)

    @property
    def tells_first(self) -> bool:
        """Must one finding be first: does one cost enough, and twice as much as the other?"""
        costs = [cost for cost, _ in self._by_cost]
        return bool(costs) and costs[0] >= 2 * FALSE_FROM and (len(costs) == 1 or costs[0] >= 2 * costs[1])

    @property
    def wrong_first(self) -> str:
        """What is first instead of the fault that costs most; "" where that is first, or cannot be known."""
        most = self._by_cost[0][1] if self.cost else ""
        if not self.tells_first or self.form not in plant.FAULTS[most].forms:
            return ""
        return "" if self.first in {most, *plant.FAULTS[most].also} else self.first or "nothing"


def _promises_nothing(rule: str) -> bool:
    return rule in plant.FAULTS and not plant.FAULTS[rule].promises


def _speaks_of_another(rule: str) -> bool:
    """Does it inform of what to do about another sickness, which its training has? A third one may take that away."""
    return plant.FAULTS[rule].informs and bool(plant.FAULTS[rule].also)


def known() -> list[str]:
    """The rules whose fault can be planted: others join when they exist."""
    rules = _rules()
    return [rule for rule in plant.FAULTS if rule in rules]


@cache
def _rules() -> Mapping[str, Rule]:
    return load_rules()


def all_cases(only: Sequence[str] = ()) -> list[Case]:
    """Alone at every level, on one rank and on eight; in pairs, where one is the larger, on one or four; a few on 64 ranks.

    `only`: those in which one of these rules is planted; "healthy" for those in which none is.
    """
    return [case for case in (*_healthy(), *_faulty()) if not only or set(only) & {*(case.shares or ("healthy",))}]


def _healthy() -> list[Case]:
    plain = [Case({}, ranks, seed) for ranks, seeds in ((1, 12), (8, 6), (64, 1)) for seed in range(seeds)]
    seeds = {1: (1, 2), 8: (4, 5)}
    return plain + [
        Case({}, ranks, seed, twin=twin) for twin in plant.TWINS for ranks, own in seeds.items() for seed in own
    ]


def _faulty() -> list[Case]:
    faults, cases = known(), []
    for rule in faults:
        fewest = plant.FAULTS[rule].fewest_ranks
        for number, share in enumerate(LEVELS):
            later = 2 * number if plant.FAULTS[rule].kinds > 2 else 0  # so that all kinds have their turn
            cases += [Case({rule: share}, 1, seed + later) for seed in (1, 2) if fewest == 1]
            cases += [Case({rule: share}, 8, seed + later) for seed in ((4,) if fewest == 1 else (4, 5))]
    for number, (one, other) in enumerate(_pairs(faults)):
        if plant.FAULTS[one].paces and plant.FAULTS[other].paces:
            continue  # each hides behind the other
        if _speaks_of_another(one) or _speaks_of_another(other):
            continue
        if plant.FAULTS[one].carrier and plant.FAULTS[one].carrier == plant.FAULTS[other].carrier:
            continue
        ranks = 4 if max(plant.FAULTS[rule].fewest_ranks for rule in (one, other)) > 1 else 1
        if ranks > 1 and number % 2:
            continue  # every second one: they take longest
        small, large = (one, other) if number // 4 % 2 else (other, one)
        cases.append(Case({small: 0.1, large: 0.4}, ranks, number, (FORMS[number // 2 % 2],)))
    many = [rule for rule in faults if rule in ("input-wait", "rank-skew", "exposed-communication", "host-syncs")]
    return cases + [Case({rule: 0.1}, 64, 7) for rule in many]


def _pairs(faults: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each fault with several others, near and far in the list: all pairs of sixty would take an hour."""
    for number, one in enumerate(faults):
        for distance in (1, 9, 22):
            yield one, faults[(number + distance) % len(faults)]


def judge(case: Case) -> list[Result]:
    """Play, write, read and diagnose one case in its forms."""
    faulty = plant.faulty(case.shares, case.ranks, case.seed, case.twin)
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for form in case.forms:
            folder = _WRITERS[form](faulty.machines, Path(scratch) / form)
            results.append(_result(case, form, faulty, diagnose(read(plant.paths(folder)), list(_rules().values()))))
    return results


def _result(case: Case, form: str, faulty: plant.Faulty, diagnosis: Diagnosis) -> Result:
    base = max(diagnosis.base_ns, 1)
    found = {each.rule: each.saving_ns_per_step.likely / base for each in all_findings(diagnosis)}
    unable = {
        outcome.rule: outcome.error or ", ".join(outcome.missing)
        for outcome in diagnosis.outcomes
        if outcome.status in ("skipped", "failed")
    }
    parts = [
        part / row.window_ns
        for row in diagnosis.time
        for part in (row.compute_ns, row.exposed_communication_ns, row.exposed_copy_ns, *row.idle_causes_ns.values())
    ]
    first = diagnosis.findings[0].rule if diagnosis.findings else ""
    under = {each.rule: cause.rule for cause in diagnosis.findings for each in cause.symptoms}
    derived = {each.rule: each.derivation for each in all_findings(diagnosis) if each.derivation is not None}
    return Result(case, form, faulty.cost, found, first, under, unable, tuple(parts), derived)


def judge_all(cases: Sequence[Case]) -> list[Result]:
    """On two cores: as many as the smallest machine that runs this has."""
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 2)) as pool:
        return [result for results in pool.map(judge, cases, chunksize=4) for result in results]


@dataclass
class Score:
    """One rule over all cases: how often found where planted, by level, and how often where not."""

    planted: dict[float, int] = field(default_factory=dict)
    found: dict[float, int] = field(default_factory=dict)
    true: int = 0
    false: int = 0
    #: Predicted saving ÷ what a fix would really save.
    promises: list[float] = field(default_factory=list)

    def recall(self, level: float) -> float | None:
        return self.found.get(level, 0) / self.planted[level] if level in self.planted else None

    @property
    def recall_from_5(self) -> float | None:
        asked = sum(count for level, count in self.planted.items() if level >= 0.05)
        return sum(count for level, count in self.found.items() if level >= 0.05) / asked if asked else None

    @property
    def precision(self) -> float:
        return self.true / (self.true + self.false) if self.true + self.false else 1.0


def scores(results: Sequence[Result]) -> dict[str, Score]:
    table: dict[str, Score] = {rule: Score() for rule in _rules()}
    for result in results:
        for rule, level in result.asked.items():
            score = table[rule]
            score.planted[level] = score.planted.get(level, 0) + 1
            score.found[level] = score.found.get(level, 0) + (rule in result.found)
            score.true += rule in result.found
            won = result.cost[rule] * plant.FAULTS[rule].fixable
            if rule in result.found and won >= 0.05 and plant.FAULTS[rule].promises:
                score.promises.append(result.found[rule] / won)
        for rule in result.false:
            table[rule].false += 1
    return table


def _in_all_forms(rule: str) -> bool:
    return rule not in plant.FAULTS or len(plant.FAULTS[rule].forms) == len(FORMS)


def in_both(case: Case) -> bool:
    """Is it written in both forms, and can both carry what was planted?"""
    return len(case.forms) == len(FORMS) and all(map(_in_all_forms, case.shares))


def differences(results: Sequence[Result]) -> Iterator[str]:
    """Where the two forms of a case disagree, though both hold what is needed."""
    by_case: dict[str, list[Result]] = {}
    for result in results:
        by_case.setdefault(result.case.label, []).append(result)
    for label, pair in by_case.items():
        if not in_both(pair[0].case):
            continue
        one, other = pair
        if len(one.parts) != len(other.parts) or any(
            abs(a - b) > SAME_WITHIN for a, b in zip(one.parts, other.parts, strict=True)
        ):
            yield f"{label}: the parts of the time differ"
        for rule in sorted(set(one.found) ^ set(other.found)):
            if not _in_all_forms(rule):
                continue
            here, there = (one, other) if rule in one.found else (other, one)
            why = f", which lacks {there.unable[rule]}" if rule in there.unable else ""
            yield f"{label}: {rule} ({here.found[rule]:.1%}) in {here.form} and not in {there.form}{why}"


def mistakes(results: Sequence[Result], from_level: float = 0.05) -> Iterator[str]:
    """Every fault of this size that was missed, every false finding, every wrong first, each with its command."""
    for result in results:
        where = f"{result.case.label}, {result.form}"
        for rule, level in result.asked.items():
            if level >= from_level and rule not in result.found:
                why = f" ({result.unable[rule]})" if rule in result.unable else ""
                yield f"missed {rule}{why}: {where}; it costs {result.cost[rule]:.1%}"
        for rule, share in result.false.items():
            yield f"false {rule} ({share:.1%}): {where}"
        if result.wrong_first:
            yield f"first is {result.wrong_first}: {where}"

"""How often is the right thing said of recordings that are no steady training: starts, single steps, decode loops, waits?

Each scene of fixtures/scenes/ is played with its fault at several shares of the recording, and without it. A rule that
is right must be among the findings, and the first of them; any other that promises 3 % or more is a false finding, and
so is one that the scene excludes, and any promise where the fault comes once.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import plant
from faults import FALSE_FROM, FORMS
from labels import all_findings
from scenes import SCENES, Scene, play, whole_graphs

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.readers.open import read
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.vocabulary.rulebook import load_rules

#: Of the recording, or of a step where each has its own; 0: the healthy twin.
SHARES = (0.0, 0.05, 0.10, 0.40)
#: From twice the share on which a false finding is counted, the right one has to be first.
_FIRST_FROM = 2 * FALSE_FROM
_WRITERS = {"nsys": plant.write_nsys, "kineto": plant.write_kineto}


@dataclass(frozen=True)
class Take:
    """One recording of a scene: the fault's share of it, which of its sizes, and its seed."""

    name: str
    share: float
    size: int = 0
    seed: int = 1
    #: Only calls and the device's work are recorded of it.
    calls_only: bool = False

    @property
    def scene(self) -> Scene:
        return SCENES[self.name]

    @property
    def right(self) -> frozenset[str]:
        """The rules of which one must find the fault; none where there is none, or nothing shows it."""
        if not self.share:
            return frozenset()
        return self.scene.of_calls if self.calls_only else self.scene.right

    @property
    def label(self) -> str:
        size = self.scene.sizes(self.share)[self.size]
        lasts = f"{size.ns / 1e6:.3g} ms, {self.share:.0%}" if self.share else "without its fault"
        return f"{self.name}, {lasts}, seed {self.seed}" + ", calls only" * self.calls_only


@dataclass(frozen=True)
class Judged:
    """What was said of one form of a take: shares that are promised, by rule, and what stands first."""

    take: Take
    form: str
    found: Mapping[str, float]
    first: str
    failed: tuple[str, ...] = ()
    #: What its findings say and should not, with their rule.
    said: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        return bool(self.take.right & set(self.found))

    @property
    def false(self) -> dict[str, float]:
        scene, right = self.take.scene, self.take.right
        # What nobody recorded may come again.
        may_promise = right | scene.also if scene.promises else right & {"idle-unknown"}
        return {
            rule: share
            for rule, share in self.found.items()
            if rule in scene.never - right or (share >= FALSE_FROM and rule not in may_promise)
        }

    @property
    def wrong_first(self) -> str:
        """What is first instead of a right rule; "" where that is first, or need not be."""
        right = self.take.right
        if self.take.share < _FIRST_FROM or not right or self.first in right | self.take.scene.also:
            return ""
        return self.first or "nothing"


def takes(only: Sequence[str] = ()) -> list[Take]:
    """All scenes, or those with these names: each kind at every share and size, and at one share without ops and ranges."""
    chosen = [name for name in SCENES if not only or name in only]
    shares = {
        name: [share for share in SHARES if not share or (SCENES[name].right and share >= SCENES[name].from_share)]
        for name in chosen
    }
    return [
        Take(name, share, size, seed, calls_only)
        for name in chosen
        for share, calls_only in [*((share, False) for share in shares[name]), (shares[name][-1] / 2, True)]
        for size in range(len(SCENES[name].sizes(share)))
        for seed in range(SCENES[name].kinds)
    ]


def judge(take: Take) -> list[Judged]:
    """Play, write, read and diagnose one take in both forms."""
    size, rules = take.scene.sizes(take.share)[take.size], list(load_rules().values())
    machine = play(take.name, size, take.seed, take.calls_only)
    recorded = {form: machine for form in FORMS if form in take.scene.forms}
    if take.seed % 2:
        recorded["nsys"] = whole_graphs(machine)
    with tempfile.TemporaryDirectory() as scratch:
        folders = {form: _WRITERS[form]([rank], Path(scratch) / form) for form, rank in recorded.items()}
        return [_judged(take, form, diagnose(read(plant.paths(folder)), rules)) for form, folder in folders.items()]


def _judged(take: Take, form: str, diagnosis: Diagnosis) -> Judged:
    base = max(diagnosis.base_ns, 1)
    findings = all_findings(diagnosis)
    found = {each.rule: each.saving_ns_per_step.likely / base for each in findings}
    first = diagnosis.findings[0].rule if diagnosis.findings else ""
    failed = tuple(outcome.rule for outcome in diagnosis.outcomes if outcome.status == "failed")
    unsaid = take.scene.unsaid and re.compile(take.scene.unsaid)
    hits = [(each.rule, unsaid.search(f"{each.title} {each.summary}")) for each in findings] if unsaid else []
    said = tuple(f"{rule} says `{hit.group()}`" for rule, hit in hits if hit)
    return Judged(take, form, found, first, failed, said)


def judge_all(chosen: Sequence[Take]) -> list[Judged]:
    """On two cores, as the planted faults."""
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 2)) as pool:
        return [judged for results in pool.map(judge, chosen, chunksize=4) for judged in results]


def recall(results: Sequence[Judged], share: float | None = None) -> float | None:
    """Of those with a fault, or of those with this share of it."""
    asked = [each for each in results if each.take.right and share in (None, each.take.share)]
    return sum(each.is_found for each in asked) / len(asked) if asked else None


def precision(results: Sequence[Judged]) -> float:
    true = sum(each.is_found for each in results)
    false = sum(len(each.false) for each in results)
    return true / (true + false) if true + false else 1.0


def mistakes(results: Sequence[Judged]) -> Iterator[str]:
    for each in results:
        where = f"{each.take.label}, {each.form}"
        if each.take.right and not each.is_found:
            yield f"missed {' or '.join(sorted(each.take.right))}: {where}"
        yield from (f"false {rule} ({share:.1%}): {where}" for rule, share in each.false.items())
        yield from (f"failed {rule}: {where}" for rule in each.failed)
        yield from (f"{said}: {where}" for said in each.said)
        if each.wrong_first:
            yield f"first is {each.wrong_first}: {where}"


def by_name(results: Sequence[Judged]) -> dict[str, list[Judged]]:
    return {name: mine for name in SCENES if (mine := [each for each in results if each.take.name == name])}

"""Which treatments are tried on this program? Those that a finding or the machine suggests, and that can work here."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from perfdoctor.patterns import regex
from perfdoctor.treatments.catalogue import Treatment
from perfdoctor.treatments.records import ShareRange

#: Without a GPU a loader's workers, and the threads of an op, share the cores with the training; with one, that many
#: workers keep up as a rule, and each more costs memory.
_MOST_WORKERS = 8
#: Variables that hold several options `name:value`, with those that torch reads them from as well (2.9 and newer, and
#: for ROCm): which of them comes first depends on the option and on torch. And where one ends: lists in brackets have
#: commas, too.
_OF_OPTIONS = {"PYTORCH_CUDA_ALLOC_CONF": ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")}
_BETWEEN_OPTIONS = regex(r",(?![^\[]*\])")


class _Speedup(Struct, frozen=True):
    low: float = 1.0
    likely: float = 1.0
    high: float = 1.0


class _Fix(Struct, frozen=True):
    how: str = ""


class DiagnosedFinding(Struct, frozen=True):
    """A finding of a diagnosis.json, as far as it is needed here."""

    rule: str
    speedup: _Speedup | None = None
    values: dict[str, Any] = field(default_factory=dict)
    fixes: tuple[_Fix, ...] = ()

    @property
    def promised(self) -> ShareRange | None:
        """The share of the step that its fix is predicted to save."""
        known = self.speedup
        if known is None or known.likely <= 1:
            return None
        return ShareRange(*(1 - 1 / each if each else 0.0 for each in (known.low, known.likely, known.high)))


class _Step(Struct, frozen=True):
    step_ns: int | None = None


class _Gpu(Struct, frozen=True):
    name: str = ""


class _Run(Struct, frozen=True):
    gpus: tuple[_Gpu, ...] = ()
    world_size: int | None = None


class DiagnosedRun(Struct, frozen=True):
    """A diagnosis.json, as far as it is needed here."""

    run: _Run = _Run()
    time: tuple[_Step, ...] = ()
    findings: tuple[DiagnosedFinding, ...] = ()

    @property
    def step_ns(self) -> int:
        return max((each.step_ns or 0 for each in self.time), default=0)


def diagnosed(document: bytes) -> DiagnosedRun:
    """Return what the content of a diagnosis.json says. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(document, type=DiagnosedRun)


class Machine(Struct, frozen=True):
    """What trials depend on. `ranks`: of the program, on this machine; 0: not known yet. `gpu`: "" without one."""

    cores: int = 1
    ranks: int = 1
    numa: int = 1
    gpu: str = ""
    bf16: bool = False
    compiler: bool = True
    torch: str = ""
    processor: str = ""

    @property
    def kind(self) -> str:
        """The kind of machine, by which measurements are kept."""
        return self.gpu or f"{self.processor or 'processor'}, {self.cores} cores"

    def has(self, need: str) -> bool:
        """Is this there? See catalogue.py for the names."""
        known = {
            "cpu": not self.gpu, "cuda": bool(self.gpu), "ranks": self.ranks != 1, "numa": self.numa > 1,
            "bf16": bool(self.gpu) or self.bf16, "compiler": self.compiler,
        }  # fmt: skip
        return known.get(need, False)


class Arm(Struct, frozen=True):
    """A treatment to be tried, with its values, the rule that suggests it ("": none), and what that predicts of it.

    A finding predicts what its own advice saves: of a treatment that this does not name nothing is predicted.
    """

    treatment: Treatment
    values: Mapping[str, Any]
    rule: str = ""
    promised: ShareRange | None = None
    #: Where the finding's own advice says to do this; infinite where it does not.
    advised_at: float = math.inf
    #: The program's own variables.
    own: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.treatment.name

    def of_ranks(self, ranks: int) -> Arm:
        """Return the arm for a program that turned out to have so many ranks on this machine, which share its cores."""
        known = self.values
        if known.get("ranks", ranks) >= ranks:
            return self
        threads = max(known["cores"] // ranks, 1)
        workers = known["workers"] if self.rule else min(known["workers"], threads)  # what a finding advises stays
        values = {**known, "ranks": ranks, "threads": threads, "workers": workers}
        return msgspec.structs.replace(self, values=values)

    @property
    def patch(self) -> str:
        """The lines for the program."""
        found = self.treatment.patch
        changed = self.environment
        for name in (each for each in _OF_OPTIONS if each in changed):
            own = [each for each in (name, *_OF_OPTIONS[name]) if each in self.own] or [name]
            words = " ".join(f"{each}={shlex.quote(changed[each])}" for each in own)
            found = found.replace(f"{name}={self.treatment.environment[name]}", words)
        for name, value in self.values.items():
            found = found.replace("{" + name + "}", str(value))
        return found

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its trials. What holds options keeps those that the program has."""
        known = {each: str(value) for each, value in self.values.items()}
        filled = {name: value.format_map(known) for name, value in self.treatment.environment.items()}
        for name in (each for each in _OF_OPTIONS if each in filled):
            own = {each: self.own[each] for each in _OF_OPTIONS[name] if each in self.own}
            own[name] = self.own.get(name, next(iter(own.values()), ""))
            added = filled[name]
            filled |= {each: _with_options(options, added) for each, options in own.items()}
        return filled


def arms(
    treatments: Mapping[str, Treatment], findings: Sequence[DiagnosedFinding], machine: Machine, *,
    only: Collection[str] = (), fixes: Collection[str] = (), own: Mapping[str, str] | None = None,
    given: Collection[str] = (),
) -> tuple[list[Arm], dict[str, str]]:  # fmt: skip
    """The treatments to be tried, those that are predicted to save most first; and by name why others are not.

    `only`: findings of these rules alone, and nothing without a finding. `fixes`: these alone, whatever was found.
    `own`: the variables of the program; `given`: the names of those that every trial is to have as they are.
    """
    by_rule = {each.rule: each for each in reversed(findings) if not only or each.rule in only}
    chosen, left_out = [], {}
    for name, each in treatments.items():
        found = max((by_rule[rule] for rule in each.rules if rule in by_rule), key=_likely, default=None)
        is_wanted = name in fixes if fixes else found is not None or (each.anyway and not only)
        if not is_wanted:
            continue
        if missing := [need for need in each.needs if not machine.has(need)]:
            left_out[name] = MISSING[missing[0]]
        elif machine.torch and _version(machine.torch) < _version(each.since):
            left_out[name] = f"it needs torch {each.since}"
        elif set_already := [variable for variable in _variables(each) if variable in given]:
            left_out[name] = f"--env sets {set_already[0]}"
        else:
            values, place = _values(machine, found), _advised_at(each, found)
            promised = found.promised if found is not None and math.isfinite(place) else None
            chosen.append(Arm(each, values, found.rule if found is not None else "", promised, place, own or {}))
    chosen.sort(key=lambda arm: -_likely(by_rule[arm.rule]) if arm.rule else 0.0)
    return _in_order(chosen), left_out


def _variables(treatment: Treatment) -> list[str]:
    """The variables that it sets, and others from which the same would be read."""
    return [each for name in treatment.environment for each in (name, *_OF_OPTIONS.get(name, ()))]


def _with_options(own: str, added: str) -> str:
    """The options `own`, with those that are `added` instead of others of their names."""

    def named(text: str) -> dict[str, str]:
        return {each.partition(":")[0].strip(): each.strip() for each in _BETWEEN_OPTIONS.split(text) if each.strip()}

    options, others = named(added), named(own)
    return ",".join([*(text for name, text in others.items() if name not in options), *options.values()])


def _advised_at(treatment: Treatment, finding: DiagnosedFinding | None) -> float:
    """At which letter of the advice the treatment is: what comes first there is best as a rule."""
    if finding is None or not treatment.advice:
        return math.inf
    found = regex(treatment.advice).search("\n".join(each.how for each in finding.fixes))
    return found.start() if found else math.inf


def _in_order(chosen: Sequence[Arm]) -> list[Arm]:
    """As the budget may end before the last: findings first, of each group one before a second one of any group."""
    likeliest = sorted(
        chosen, key=lambda arm: (not arm.rule, -(arm.promised.likely if arm.promised else 0.0), arm.advised_at)
    )
    counted = Counter[str]()
    places = []
    for arm in likeliest:
        group = arm.treatment.group or arm.name
        places.append((not arm.rule, counted[group]))
        counted[group] += 1
    return [arm for _, arm in sorted(zip(places, likeliest, strict=True), key=lambda each: each[0])]


#: Why a treatment is not tried, by what it needs and is not there.
MISSING = {
    "cpu": "the program trains on a GPU", "cuda": "there is no GPU", "ranks": "the program has one rank",
    "numa": "the machine has one NUMA node", "bf16": "the processor has no bfloat16",
    "compiler": "there is no C++ compiler",
}  # fmt: skip


def _likely(finding: DiagnosedFinding) -> float:
    return finding.promised.likely if finding.promised else 0.0


def _values(machine: Machine, finding: DiagnosedFinding | None) -> dict[str, Any]:
    """The values of a treatment: of the machine, and what the finding advises."""
    ranks = max(machine.ranks, 1)
    threads = max(machine.cores // ranks, 1)
    advised = finding.values.get("workers") if finding else None
    is_advised = isinstance(advised, int) and not isinstance(advised, bool) and advised > 0
    workers = advised if is_advised else min(threads, _MOST_WORKERS)
    return {
        "cores": machine.cores, "ranks": ranks, "threads": threads, "workers": workers,
        "device": "cuda" if machine.gpu else "cpu",
    }  # fmt: skip


def _version(text: str) -> tuple[int, ...]:
    numbers = text.split("+", maxsplit=1)[0].split(".")[:2]
    return tuple(int(each) if each.isdecimal() else 0 for each in numbers)

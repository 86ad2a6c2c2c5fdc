"""What is predicted for trainings of which the step was measured before and after a change? The pairs of pairs.toml."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from labels import all_findings, recordings

from perfdoctor.diagnosis.calibration import SavingSpread
from perfdoctor.diagnosis.engine import Examination, examine
from perfdoctor.diagnosis.predicted_saving import PredictedSaving
from perfdoctor.diagnosis.questions import questions
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.readers.open import read
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.categories import CATEGORIES
from perfdoctor.vocabulary.rulebook import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HERE = Path(__file__).parent
#: Recordings of our own programs before a change, and the file of what was measured.
KEPT = _HERE.parent / "fixtures" / "pairs"
MEASURED = KEPT / "measured.toml"
#: Classes of pairs that are of no single rule.
SEVERAL, SIZES = "several rules", "other sizes"


@dataclass(frozen=True)
class Measured:
    """Rounds of one of our own pairs: ms a step before and after, each round one behind the other."""

    before_ms: tuple[float, ...]
    after_ms: tuple[float, ...]

    @property
    def left(self) -> float:
        """What the change leaves of the step, as a share: the median over the rounds."""
        return statistics.median(self._ratios)

    @property
    def spread(self) -> float:
        """How far single rounds are from it: half of the way between the least and the most, as a share of the step."""
        return (max(self._ratios) - min(self._ratios)) / 2

    @property
    def _ratios(self) -> list[float]:
        return [after / before for before, after in zip(self.before_ms, self.after_ms, strict=True)]


@dataclass(frozen=True)
class Pair:
    """A recording before a change, and the step behind it. `measured`: of our own pairs alone, as is `name`."""

    path: Path
    fixed: tuple[str, ...]
    name: str = ""
    step_ms: float = 0.0
    source: str = ""
    measured: Measured | None = None
    advice: str = ""

    @property
    def label(self) -> str:
        return self.name or f"{self.path.parent.name}/{self.path.name}"

    @property
    def rule(self) -> str:
        """The one rule of which a finding was fixed; "" where it was more, or another size of the run."""
        return self.fixed[0] if len(self.fixed) == 1 and self.fixed[0] in load_rules() else ""

    @property
    def kind(self) -> str:
        """Its class: the category of its rule, as the pages of a report have them."""
        if self.rule:
            return load_rules()[self.rule].category
        return SEVERAL if all(each in load_rules() for each in self.fixed) else SIZES

    def measured_ms(self, base_ms: float) -> float:
        """The step behind the change. Our own: of a step that takes `base_ms` before, as the recorded run's does."""
        return self.measured.left * base_ms if self.measured else self.step_ms


@dataclass(frozen=True)
class Held:
    """A prediction held against what was measured: ms a step before, after, and as predicted (least, likely, most).

    `saving`: the finding's, where the pair is of one rule and that was found.
    """

    pair: Pair
    base_ms: float
    measured_ms: float
    predicted_ms: tuple[float, float, float]
    saving: PredictedSaving | None = None

    @property
    def error(self) -> float | None:
        """Of the predicted step, as a share of the measured one; None where a saving is only bounded, none is likely."""
        if self.saving is not None and not self.saving.ns.likely and self.saving.ns.high:
            return None
        return self.predicted_ms[1] / self.measured_ms - 1

    @property
    def holds(self) -> bool:
        """Is the measured step inside of the range, as far as its rounds agree on it?"""
        unsure_ms = self.pair.measured.spread * self.base_ms if self.pair.measured else 0.0
        return self.predicted_ms[0] - unsure_ms <= self.measured_ms <= self.predicted_ms[2] + unsure_ms

    @cached_property
    def ratio(self) -> float | None:
        """Measured saving over the likely one; None where that is not known, or lost in noise."""
        if self.saving is None or self.saving.calibrated(None).likely < LEAST_SHARE * self.base_ms * 1e6:
            return None
        return (self.base_ms - self.measured_ms) * 1e6 / self.saving.calibrated(None).likely

    def with_spread(self, spread: SavingSpread | None) -> Held:
        """The same, its range calibrated in another way."""
        if self.saving is None:
            return self
        return _of_saving(self.pair, self.base_ms, self.saving.calibrated(spread), self.saving)


#: A recorded run whose step differs by more from what was measured before the change had the machine to share: what it says
#: is of another step.
_SAME_STEP = 1.25
#: Of the step. The step of one training differs by so much from run to run (`replay/what_if/spread.py`): how far a
#: smaller saving was missed says nothing of its prediction.
LEAST_SHARE = 0.05


def entries() -> list[Mapping[str, Any]]:
    """The pairs as they stand in the file."""
    return list(tomllib.loads((_HERE / "pairs.toml").read_text("utf-8"))["pair"])


def public() -> list[Mapping[str, Any]]:
    """Those of public recordings."""
    return [each for each in entries() if "path" in each]


def own() -> list[Mapping[str, Any]]:
    """Those that programs of this project make."""
    return [each for each in entries() if "recording" in each]


def measured() -> dict[str, Measured]:
    """By a pair's name what was measured of it."""
    if not MEASURED.exists():
        return {}
    known = tomllib.loads(MEASURED.read_text("utf-8")).get("pair", [])
    return {each["name"]: Measured(tuple(each["before_ms"]), tuple(each["after_ms"])) for each in known}


def pairs() -> list[Pair]:
    """Those of which the recording and the measurement are on this machine."""
    folder, known = recordings(), measured()
    found = [
        Pair(folder / each["path"], tuple(each["fixed"]), step_ms=float(each["step_ms"]), source=each["measured"])
        for each in (public() if folder else ())
    ]
    found += [
        Pair(
            KEPT / each["recording"],
            tuple(each["fixed"]),
            each["name"],
            measured=known[each["name"]],
            advice=each.get("advice", ""),
        )
        for each in own()
        if each["name"] in known and (KEPT / each["recording"]).is_dir()
    ]
    return found


def held(given: Sequence[Pair]) -> list[Held]:
    """Each pair predicted from the recording before it, but those whose fix nobody advised. Each recording is read once."""
    by_path: dict[Path, list[Pair]] = {}
    for pair in given:
        by_path.setdefault(pair.path, []).append(pair)
    found = {id(each.pair): each for path, of_path in by_path.items() for each in _of_recording(path, of_path)}
    return [found[id(pair)] for pair in given if id(pair) in found]


def _of_recording(path: Path, given: Sequence[Pair]) -> Iterator[Held]:
    rules = load_rules()
    run = prepare(read([path]))
    plain = examine(run, list(rules.values()))
    base_ms = plain.diagnosis.base_ns / 1e6
    first_fixes = {
        each.rule: each.fixes[0].title.lower() if each.fixes else "" for each in all_findings(plain.diagnosis)
    }
    for pair in given:
        if pair.advice not in first_fixes.get(pair.rule, pair.advice) or not _is_same_step(pair, base_ms):
            continue
        if pair.rule:
            yield _of_rule(pair, plain)
            continue
        asked = examine(run, list(rules.values()), questions(", ".join(pair.fixed), rules)).diagnosis
        assert asked.prediction is not None
        base_ms = asked.base_ns / 1e6
        least, likely, most = (ns / 1e6 for ns in asked.prediction.step_ns)
        yield Held(pair, base_ms, pair.measured_ms(base_ms), (least, likely, most))


def _is_same_step(pair: Pair, base_ms: float) -> bool:
    before_ms = statistics.median(pair.measured.before_ms) if pair.measured else base_ms
    return 1 / _SAME_STEP <= base_ms / before_ms <= _SAME_STEP


def _of_rule(pair: Pair, plain: Examination) -> Held:
    """What its costliest finding says; the step as it is where there is none."""
    base_ms = plain.diagnosis.base_ns / 1e6
    savings = [each.saving for each in plain.found if each.rule.id == pair.rule]
    saving = max(savings, key=lambda each: each.ns.likely, default=None)
    return _of_saving(pair, base_ms, saving.ns if saving else Saving(0, 0, 0), saving)


def _of_saving(pair: Pair, base_ms: float, ns: Saving, saving: PredictedSaving | None) -> Held:
    least, likely, most = (base_ms - each / 1e6 for each in (ns.high, ns.likely, ns.low))
    return Held(pair, base_ms, pair.measured_ms(base_ms), (least, likely, most), saving)


# --- how often, and how far --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coverage:
    """Of the pairs of one class: how many, the median error of the likely step (NaN: none has one), how many are inside."""

    kind: str
    pairs: int
    median_error: float
    inside: int


def coverage(found: Sequence[Held]) -> list[Coverage]:
    """By class in the order of the report's categories, and of all."""
    kinds = [kind for kind in (*CATEGORIES, SEVERAL, SIZES) if any(each.pair.kind == kind for each in found)]
    return [
        Coverage(
            kind,
            len(of_kind),
            statistics.median([abs(each.error) for each in of_kind if each.error is not None] or [math.nan]),
            sum(each.holds for each in of_kind),
        )
        for kind in (*kinds, "all")
        if (of_kind := [each for each in found if kind in (each.pair.kind, "all")])
    ]


def off(each: Held) -> str:
    """By how much the likely step is off, and whether the measured one is outside of the range."""
    return ("bounded only" if each.error is None else f"{each.error:+.1%}") + ("" if each.holds else ", outside")

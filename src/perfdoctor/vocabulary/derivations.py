"""How is a predicted saving computed? The formulas of a rule's document, their inputs, and the words for both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

_WORDS = shipped_table(Path(__file__).with_suffix(".toml"))
#: Where a number may come from, what may limit a saving, and the units of numbers by the ends of their names.
SOURCES: Mapping[str, str] = _WORDS["sources"]
BOUNDS: Mapping[str, str] = _WORDS["bounds"]
_UNITS: Mapping[str, str] = _WORDS["units"]
#: The sources that a document may name.
WRITTEN_SOURCES = ("recording", "table", "machine", "data-sheet", "measured")

_NAMED = regex(r"\{(\w+)\}")


class FormulaInput(Struct, frozen=True):
    """A number of the finding's values. `what` it is, as part of a sentence.

    `rate`: of `machine` and `data-sheet`, which one: a data type, `memory`, `host_link` (`hardware.peaks.SETTABLE`) or
    `link` (between GPUs: all of them) and `nvlink` (one of them). `document`: of a `table`, also where the finding says
    that the number is from there.
    """

    source: str
    what: str
    rate: str = ""
    document: str = ""


class RuleDerivation(Struct, frozen=True):
    """The table `[derivation]` of a rule's document. `formula` gives the likely saving, `low` and `high` the range.

    Each is one line of plain arithmetic over `{names}`: keys of `inputs`, which are values of the finding, or
    thresholds of the rule. `source`: the paper or document that the formula is from. `situations` has what differs in
    some of the finding's situations.
    """

    formula: str
    low: str
    high: str
    inputs: Mapping[str, FormulaInput] = field(default_factory=dict)
    source: str = ""
    situations: Mapping[str, RuleDerivation] = field(default_factory=dict)

    def of(self, situation: str) -> RuleDerivation:
        """Return the formulas and inputs for this situation."""
        return self.situations.get(situation, self)

    @property
    def cases(self) -> Mapping[str, str]:
        """The formula of each value of the range."""
        return {"likely": self.formula, "low": self.low, "high": self.high}

    @property
    def by_situations(self) -> Mapping[tuple[str, ...], Mapping[str, str]]:
        """The usual formulas under (), and what differs from them under the situations that have it in common."""
        found: dict[tuple[tuple[str, str], ...], tuple[str, ...]] = {}
        for situation, how in self.situations.items():
            other = tuple((case, formula) for case, formula in how.cases.items() if formula != self.cases[case])
            found[other] = (*found.get(other, ()), situation)
        return {(): self.cases, **{situations: dict(other) for other, situations in found.items() if other}}

    @property
    def every_input(self) -> Mapping[str, FormulaInput]:
        """Every input by its name, also of situations alone; the usual declaration where a situation's differs."""
        later = {name: given for how in self.situations.values() for name, given in how.inputs.items()}
        return {**later, **self.inputs}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values and thresholds in the formulas, in the order in which they are read."""
        found = (name for text in (self.formula, self.low, self.high) for name in _NAMED.findall(text))
        return tuple(dict.fromkeys(found))


def read(document: Mapping[str, Any]) -> RuleDerivation:
    """Parse `[derivation]` of a rule's document. Raises KeyError, TypeError or PerfdoctorError if it is wrong."""
    fields = dict(document)
    situations = fields.pop("situations", {})
    inputs = {name: _input(name, entry) for name, entry in fields.pop("inputs", {}).items()}
    usual = RuleDerivation(fields.pop("formula"), fields.pop("low"), fields.pop("high"), inputs, **fields)
    return replace(usual, situations={name: _situation(usual, entry) for name, entry in situations.items()})


def _situation(usual: RuleDerivation, entry: Mapping[str, Any]) -> RuleDerivation:
    fields = dict(entry)
    inputs = {name: _input(name, each) for name, each in fields.pop("inputs", {}).items()}
    return replace(usual, inputs={**usual.inputs, **inputs}, **fields)


def _input(name: str, entry: Mapping[str, Any]) -> FormulaInput:
    found = FormulaInput(**entry)
    if found.source not in WRITTEN_SOURCES:
        raise PerfdoctorError(
            f"the input {name!r} of [derivation] is from {found.source!r}",
            do=f"Write one of {', '.join(WRITTEN_SOURCES)}.",
        )
    return found


def unit_of(name: str) -> str:
    """Unit of the number with this name: `ms`, `GB/s`, `%` …, or `count`."""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "count")


def plain(formula: str) -> str:
    """A formula as it is read: `exposed_ms × avoidable_share_likely`."""
    return _NAMED.sub(r"\1", formula)

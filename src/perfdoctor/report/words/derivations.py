"""How is it said how a predicted saving was computed?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfdoctor.report.words import wording
from perfdoctor.report.words.foreign_text import clean, clean_name
from perfdoctor.vocabulary.derivations import BOUNDS, SOURCES

if TYPE_CHECKING:
    from perfdoctor.records.savings import Derivation, DerivedInput

HEADING = "How the saving was computed"
UNLIMITED = "Nothing else limits it."
#: Units of values (`vocabulary.derivations.unit_of`) → how many of the base unit that a word is made for.
_DURATIONS = {"ms": 1e6, "µs": 1e3, "ns": 1.0}
_LONGEST = 600


def formulas(derivation: Derivation) -> Iterator[tuple[str, str, str]]:
    """Case, formula and result of each case: `likely`, `exposed_ms × 0.9`, `88.7 ms`."""
    expected = derivation.expected
    yield "likely", derivation.formula, wording.duration(expected.likely)
    yield "low", derivation.low, wording.duration(expected.low)
    yield "high", derivation.high, wording.duration(expected.high)


def amount(given: DerivedInput) -> str:
    """The number with its unit; a threshold's unit is a sentence, which its name already says."""
    value, unit = given.value, given.unit
    if value is None:
        return wording.NO_NUMBER
    if unit in _DURATIONS:
        return wording.duration(value * _DURATIONS[unit])
    if unit == "GB/s":
        return wording.rate(value * 1e9)
    if unit == "TFLOP/s":
        return wording.flop_rate(value * 1e12)
    if unit == "%":
        return wording.fine_share(value / 100)
    if unit in ("MB", "MiB", "MHz", "bytes"):
        return f"{wording.count(value)} {unit}"
    return wording.count(value) if unit == "count" and given.source != "rule" else f"{value:.4g}"


def source(given: DerivedInput) -> str:
    """`recording`, `data sheet` …"""
    return SOURCES.get(given.source, given.source)


def about(given: DerivedInput) -> str:
    """What the number is, and which GPU and document a rate is from."""
    document = clean_name(given.document, _LONGEST)
    return f"{clean(given.what, _LONGEST).rstrip('.')}. {document}" if document else clean(given.what, _LONGEST)


def limits(derivation: Derivation) -> list[str]:
    """What limited the result, each with what it left; [] where nothing did."""
    found = []
    for bound in derivation.bounds:
        left = wording.durations(bound.left.low, bound.left.likely, bound.left.high)
        found.append(f"{BOUNDS[bound.by].capitalize()}: {left}.")
    return found

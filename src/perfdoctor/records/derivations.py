"""Where does the number of a predicted saving come from?"""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.records.savings import Saving


class Bound(Struct, frozen=True):
    """What limits a saving: `by` is one of `vocabulary.derivations.BOUNDS`; `left`: what it leaves, in ns per step."""

    by: str
    left: Saving


class DerivedInput(Struct, frozen=True):
    """A number that entered a formula. `source`: one of `vocabulary.derivations.SOURCES`.

    `value`: None where it is not known here. `what`: what it is, or of a threshold, why it is that number. `document`:
    of which device, and in which document it stands; "" for the recording and for thresholds.
    """

    name: str
    value: float | None
    unit: str
    source: str
    what: str
    document: str = ""


class Derivation(Struct, frozen=True):
    """How a predicted saving was computed: `formula` gives the likely value, `low` and `high` the ends of its range.

    `formula_source`: the paper or document of the formula, "" for plain arithmetic. `expected`: what the formulas give,
    in ns per step; `bounds`: what limited that, in the order in which it was applied; () where nothing did.
    """

    formula: str
    low: str
    high: str
    formula_source: str
    inputs: tuple[DerivedInput, ...]
    expected: Saving
    bounds: tuple[Bound, ...] = ()

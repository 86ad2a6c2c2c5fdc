"""How much shorter does a step get, and where does that number come from?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct

Amount = TypeVar("Amount", int, float)

#: The three values of a range, in the order of `Saving`.
CASES = ("low", "likely", "high")


class Range(Struct, Generic[Amount], frozen=True, eq=False):
    """A predicted number, low ≤ likely ≤ high. It unpacks, is indexed and compares as a tuple of the three."""

    low: Amount
    likely: Amount
    high: Amount

    def __iter__(self) -> Iterator[Amount]:
        return iter((self.low, self.likely, self.high))

    def __getitem__(self, case: int) -> Amount:
        return tuple(self)[case]

    def __len__(self) -> int:
        return len(CASES)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Range) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))


class Saving(Struct, frozen=True):
    """How much shorter a step gets, in ns per step (per window where no steps were found): low ≤ likely ≤ high.

    Where only `high` is above 0 the saving is unknown, and at most so much.
    """

    low: int
    likely: int
    high: int

    def __post_init__(self) -> None:
        assert 0 <= self.low <= self.likely <= self.high, f"a saving must be ordered: {self}"

    def within(self, most_ns: int) -> Saving:
        """This saving with each value limited to `most_ns`."""
        return Saving(min(self.low, most_ns), min(self.likely, most_ns), min(self.high, most_ns))

    def scaled(self, share: float) -> Saving:
        return self if share == 1 else Saving(*(round(share * ns) for ns in (self.low, self.likely, self.high)))


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

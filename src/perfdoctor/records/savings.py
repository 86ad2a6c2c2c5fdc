"""How much shorter does a step get?"""

from __future__ import annotations

from msgspec import Struct

#: The three values of a range, in the order of `Saving`.
CASES = ("low", "likely", "high")


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
        """The same, where nothing can save more than `most_ns`."""
        return Saving(min(self.low, most_ns), min(self.likely, most_ns), min(self.high, most_ns))

    def scaled(self, share: float) -> Saving:
        return self if share == 1 else Saving(*(round(share * ns) for ns in (self.low, self.likely, self.high)))

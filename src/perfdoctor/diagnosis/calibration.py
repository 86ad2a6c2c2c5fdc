"""How far are measured savings from likely ones? By category of rule, from trainings measured with and without a fix.

`calibration.toml` holds it: `benchmarks/calibrate.py` writes that, from the pairs of `benchmarks/pairs.toml` and from
planted faults, and says how. A range that is at least so wide holds the measured saving of 80 in 100 such pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from perfdoctor.records.savings import Saving
from perfdoctor.system.toml_tables import shipped_table

#: For categories of which too few pairs were measured.
OTHERS = "others"


class SavingSpread(Struct, frozen=True):
    """Measured over likely saving: a tenth of the pairs are below `low`, and a tenth above `high`.

    `pairs`: the measured ones that it rests on; `planted`: the planted faults.
    """

    low: float
    high: float
    pairs: int = 0
    planted: int = 0

    def around(self, saving: Saving, most_ns: int) -> Saving:
        """The saving with its range at least as wide as this spread; widening stops at 0 and at `most_ns`."""
        low, high = self.low * saving.likely, min(self.high * saving.likely, most_ns)
        return Saving(max(min(saving.low, round(low)), 0), saving.likely, max(saving.high, round(high)))


def spread_of(category: str) -> SavingSpread | None:
    """The spread of this category, else the widest of any; None if nothing was measured."""
    return known().get(category) or known().get(OTHERS)


@lru_cache(maxsize=1)
def known() -> Mapping[str, SavingSpread]:
    """The spread of each category, and that for all others."""
    document = shipped_table(Path(__file__).with_name("calibration.toml"))
    return {name: SavingSpread(**row) for name, row in document.get("spread", {}).items()}

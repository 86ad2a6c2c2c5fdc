"""How far are measured savings from likely ones, and how wide are the ranges of predictions?

`calibration.toml` holds the spread for each category of rule: `benchmarks/calibrate.py` writes it, from trainings
measured with and without a fix (`benchmarks/pairs.toml`) and from planted faults. A range that is at least so wide
holds the measured saving of 80 in 100 such pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.records.predictions import Prediction
from perfdoctor.records.savings import Range, Saving
from perfdoctor.system.toml_tables import shipped_table

#: Of the step. A replay comes as close to the steps it was made of, and no second run as close to the first: what is
#: less is noise, and no saving.
NOISE_SHARE = 0.001
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


def in_calibrated_range(prediction: Prediction, savings: Sequence[Saving]) -> Prediction:
    """The prediction with its range widened to that of `savings`, each weighted by what it is likely to save.

    At most they save what each of them may save by itself, and never the whole step.
    """
    likely_ns = sum(ns.likely for ns in savings)
    if not likely_ns:
        return prediction
    now_ns, saved_ns = prediction.now_ns, prediction.now_ns - prediction.step_ns[1]
    least_ns, most_ns = (
        saved_ns * sum(case) / likely_ns for case in zip(*((ns.low, ns.high) for ns in savings), strict=True)
    )
    most_ns = min(most_ns, sum(ns.high for ns in savings), now_ns * (1 - NOISE_SHARE))
    best_ns = max(min(prediction.step_ns[0], round(now_ns - most_ns)), 1)
    worst_ns = max(prediction.step_ns[2], min(round(now_ns - least_ns), now_ns))
    step_ns = Range(best_ns, prediction.step_ns.likely, worst_ns)
    return replace(prediction, step_ns=step_ns, speedup=Range(*(now_ns / ns for ns in reversed([*step_ns]))))

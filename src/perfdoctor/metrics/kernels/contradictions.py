"""Where do Nsight Compute and the GPU's own counters say different things of the same kernels?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.counters.kinds import of_names
from perfdoctor.metrics.grouping import weighted_mean
from perfdoctor.metrics.kernels.profiles import measured
from perfdoctor.model.place import Place

#: What both measure: the column of ncu's, of the counters', and the words for it.
_BOTH = {"tensor_share": ("tensor_active_share", "tensor cores"), "dram_share": ("dram_share", "the memory")}
#: Counters are sure to 5 points, and one launch that ncu replays stands for many: less than this is no contradiction.
_LEAST_DIFFERENCE = 0.2
#: Kernels that take less of the window decide nothing.
_LEAST_TIME = 0.05


class Contradiction(Struct, frozen=True):
    """One kernel, what was measured of it, and by which tool how much, as shares of the peak."""

    kernel: str
    what: str
    by_ncu: float
    by_counters: float


def contradictions(place: Place) -> Iterator[Contradiction]:
    """Those of kernels with a twentieth of the window or more, the longest first."""
    if not len(place.timeline["kernel_profiles"]) or not len(place.kernels):
        return
    by_ncu, names, ns = measured(place), place.kernels.name, place.kernel_ns
    for name, _, total in sorted(names.sums(ns), key=lambda each: -each[2]):
        rows = names.equals(name)
        for column, (counter, what) in _BOTH.items() if place.share(total) >= _LEAST_TIME else ():
            one, other = (
                weighted_mean(values[rows], ns[rows])
                for values in (by_ncu.number(column), of_names(place, names, counter))
            )
            if abs(one - other) >= _LEAST_DIFFERENCE and not np.isnan(one + other):
                yield Contradiction(name, what, one, other)

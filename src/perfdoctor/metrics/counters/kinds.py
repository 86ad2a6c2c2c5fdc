"""What did the GPU's counters measure while kernels of one name, or of one family, ran?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.counters.rates import RATES, rates_of
from perfdoctor.metrics.grouping import combined, weighted_mean
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Mask, Text
from perfdoctor.records.findings import Measure
from perfdoctor.vocabulary.names import kernels as kernel_names

By = Literal["name", "family"]


class Measured(Struct, frozen=True):
    """What counters measured while kernels of one kind ran, as shares of the peak; NaN where unknown.

    `samples`: in how many of them any such kernel ran.
    """

    sm_active_share: float
    sm_issue_share: float
    tensor_active_share: float
    dram_share: float
    samples: int


@once_per_place
def measured(place: Place, by: By) -> Mapping[str, Measured]:
    """The kernels and collectives of the window by name or family; empty where the counters are not known."""
    names = Text.join([place.kernels.name, place.collectives.name])
    if by == "family":
        names = names.mapped(kernel_names.family_or_communication)
    kinds, codes = list(names.values), names.codes.astype(np.int64)
    found = rates_of(place, codes, len(kinds))
    if found is None:
        return {}
    rows = zip(found.rates.tolist(), found.samples.tolist(), strict=True)
    return {
        kind: Measured(sm, issue, tensor, dram, count)
        for kind, ((sm, issue, tensor, dram), count) in zip(kinds, rows, strict=True)
        if count
    }


def of_names(place: Place, names: Text, column: str) -> Floats:
    """One of RATES for each of these kernels, by its name; NaN where it is not known."""
    found, nothing = measured(place, "name"), float("nan")
    values = [getattr(found[name], column) if name in found else nothing for name in names.values]
    return np.array([*values, nothing], float)[names.codes]


@once_per_place
def of_grids(place: Place) -> Mapping[str, Floats]:
    """Each of RATES for each of `place.kernels`, by its name and its blocks; NaN where it is not known.

    Kernels of one name may have one block here and thousands there: their mean holds for neither.
    """
    kernels, collectives = place.kernels, place.collectives
    kind, first = combined(kernels.name.codes, kernels["blocks"])
    size = first.size + len(collectives.name.values)
    found = rates_of(place, np.concatenate((kind, first.size + collectives.name.codes.astype(np.int64))), size)
    nothing = np.full(size, np.nan)
    return {column: (found.of(column) if found else nothing)[kind] for column in RATES}


def counted_evidence(place: Place, rows: Mask) -> tuple[Measure, ...]:
    """What the counters measured while these kernels ran, each counting as long as it runs; () where unknown."""
    said = {"dram_share": "of the peak of the memory, in them", "sm_active_share": "of the SMs at work in them"}
    weight = place.kernel_ns[rows]
    means = {
        what: weighted_mean(of_names(place, place.kernels.name, column)[rows], weight) for column, what in said.items()
    }
    return tuple(
        Measure(f"{what}, by the GPU's counters", mean, "share") for what, mean in means.items() if not np.isnan(mean)
    )


def measured_of_all(places: Sequence[Place], by: By, kinds: Sequence[str]) -> Mapping[str, Floats]:
    """For each of RATES an element a kind, the mean of all places by their samples; and `samples` of all places."""
    each = [found for place in places if (found := measured(place, by))]
    nothing = Measured(np.nan, np.nan, np.nan, np.nan, 0)
    rows = [[found.get(kind, nothing) for found in each] for kind in kinds]
    counts = [np.array([row.samples for row in of_kind], float) for of_kind in rows]

    def means(column: str) -> Floats:
        values = (np.array([getattr(row, column) for row in of_kind], float) for of_kind in rows)
        return np.array([weighted_mean(value, count) for value, count in zip(values, counts, strict=True)], float)

    total = np.array([count.sum() for count in counts], float)
    return {**{column: means(column) for column in RATES}, "samples": np.where(total > 0, total, np.nan)}

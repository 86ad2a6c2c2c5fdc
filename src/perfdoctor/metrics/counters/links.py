"""How busy were the GPU's links, by its own counters, while something crossed them, and while nothing of ours did?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.metrics.counters.rates import rates_of
from perfdoctor.metrics.counters.samples import LEAST_SAMPLES, CounterSamples, usable
from perfdoctor.metrics.grouping import sums
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Frame, Mask, Text
from perfdoctor.records.findings import Measure

#: A sample shows what crossed the link meanwhile if so much of it lies there: of a shorter copy it shows a part.
_COVERED = 0.9
#: A rate this many standard errors above 0 is none by chance: one of 700 would be (Gauss).
_SURE = 3
#: The counters of each direction of a copy.
_WAYS = {"h2d": "pcie_rx", "d2h": "pcie_tx"}


def busy_share(place: Place, link: str, when: Intervals) -> float:
    """How busy one direction of a link was in samples that lie in `when`, from 0 to 1; NaN where fewer than
    LEAST_SAMPLES do. `link`: what its counters' columns begin with.
    """
    found = usable(place)
    columns = _columns(found, link)
    if found is None or not columns:
        return float("nan")
    values = _summed(found.rows.take(np.flatnonzero(found.covered(when) >= _COVERED)), columns)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size >= LEAST_SAMPLES else float("nan")


def host_link_share(place: Place, rows: Mask) -> float:
    """How busy the link to the host was, in their direction, while these rows of `place.copies` ran; NaN: unknown."""
    shares = []
    for direction, link in _WAYS.items():
        own = rows & place.copies.text("direction").equals(direction)
        shares.append(busy_share(place, link, Intervals.of(place.copies.start_ns[own], place.copies.end_ns[own])))
    known = [share for share in shares if not np.isnan(share)]
    return max(known, default=float("nan"))


def unexplained_share(place: Place, link: str) -> float:
    """How busy a link was in the window while no recorded copy or collective ran that could cross it; NaN: unknown."""
    return busy_share(place, link, place.window - place.recorded("copies").intervals - place.communication)


def busiest_kernel(place: Place, link: str) -> tuple[str, float]:
    """The kernel that moves most over a link by itself, reading or writing memory beyond it, and how busy the link is
    while it runs, from 0 to 1; "" where none does, or that cannot be separated from what else ran.
    """
    columns = _columns(usable(place), link)
    names = Text.join([place.kernels.name, place.collectives.name])
    kinds, kind = names.values, names.codes.astype(np.int64)
    found = columns and rates_of(place, kind, len(kinds), lambda rows: _summed(rows, columns)[:, None])
    if not found:
        return "", float("nan")
    ns = np.concatenate((place.kernels.duration_ns, np.zeros(len(place.collectives), np.int64)))
    more = found.rates[:, 0] - np.nan_to_num(found.idle[0])  # what comes while nothing runs is no kernel's
    moved = np.nan_to_num(more) * sums(kind, ns, len(kinds))
    busiest = int(moved.argmax())
    is_sure = moved[busiest] > 0 and more[busiest] >= _SURE * found.errors[busiest, 0]
    return (kinds[busiest], float(found.rates[busiest, 0])) if is_sure else ("", float("nan"))


def _columns(found: CounterSamples | None, link: str) -> list[str]:
    """The counters of one direction of a link: user data, protocol and so on add up."""
    return [column for column in found.recorded if column.startswith(link)] if found else []


def _summed(rows: Frame, columns: Sequence[str]) -> Floats:
    total: Floats = np.sum([rows.floats(column) for column in columns], axis=0)
    return total


def nvlink_evidence(place: Place) -> tuple[Measure, ...]:
    """How busy NVLink was while collectives ran, in the busier direction; () where it is unknown."""
    shares = [busy_share(place, link, place.communication) for link in ("nvlink_rx", "nvlink_tx")]
    known = [share for share in shares if not np.isnan(share)]
    label = "of the peak of NVLink, while they ran, by the GPU's counters"
    return (Measure(label, max(known), "share"),) if known else ()

"""How busy were the GPU's links, by its own counters, while something crossed them, and while nothing of ours did?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.counters.samples import LEAST_SAMPLES, usable
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Measure

#: A sample shows what crossed the link meanwhile if so much of it lies there: of a shorter copy it shows a part.
_COVERED = 0.9
#: The counters of each direction of a copy.
_WAYS = {"h2d": "pcie_rx", "d2h": "pcie_tx"}


def busy_share(place: Place, link: str, when: Intervals) -> float:
    """How busy one direction of a link was in samples that lie in `when`, from 0 to 1; NaN where fewer than
    LEAST_SAMPLES do. `link`: what its counters' columns begin with; user data, protocol and so on add up.
    """
    found = usable(place)
    columns = [column for column in found.recorded if column.startswith(link)] if found else []
    if found is None or not columns:
        return float("nan")
    inside = found.covered(when) >= _COVERED
    values = np.sum([found.rows.floats(column)[inside] for column in columns], axis=0)
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


def nvlink_evidence(place: Place) -> tuple[Measure, ...]:
    """How busy NVLink was while collectives ran, in the busier direction; () where it is unknown."""
    shares = [busy_share(place, link, place.communication) for link in ("nvlink_rx", "nvlink_tx")]
    known = [share for share in shares if not np.isnan(share)]
    label = "of the peak of NVLink, while they ran, by the GPU's counters"
    return (Measure(label, max(known), "share"),) if known else ()

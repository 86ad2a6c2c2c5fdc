"""Large copies from pinned memory run far below what the GPU's link to the host gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.affected import affected
from perfdoctor.metrics.copies import transfers
from perfdoctor.metrics.counters.links import host_link_share
from perfdoctor.metrics.units import ms, percent
from perfdoctor.metrics.work.device_peaks import peaks
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving

#: Each generation of PCIe doubles the rate of the one before, and an older slot may be all there is.
OLDER_SLOT_SHARE = 0.5


def _peak(place: Place) -> float:
    """The rate of the host link in bytes/s; 0 where the GPU is not known."""
    known = peaks(place)
    return known.host_link_bytes_per_second if known else 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Compare the median rate with the link's; those that share it with another one in their direction do not count."""

    def large(place: Place) -> Mask:
        pinned = transfers.copies_of(place, "h2d", "d2h") & transfers.host_memory(place, "pinned")
        alone = transfers.sharing_one_way_ns(place) <= at["max_shared_share"] * place.copies.duration_ns
        return pinned & (transfers.sizes(place) >= at["min_bytes"]) & alone

    def large_ns(place: Place) -> int:
        return transfers.exposed_ns(place, large(place)) if _peak(place) else 0

    found = affected(run, large_ns, at["min_share_of_step"])
    if found is None:
        return
    worst = found.worst
    rows, peak = large(worst), _peak(worst)
    rate = float(np.median(transfers.rates(worst.copies)[rows]))
    if int(rows.sum()) < at["min_copies"] or rate >= at["slow_share_of_peak"] * peak:
        return
    reachable = at["reachable_share_of_peak"] * peak
    older = reachable * OLDER_SLOT_SHARE
    tested = transfers.measured_pinned(worst)
    best, most = tested or older, max(reachable, tested)
    busy = host_link_share(worst, rows)
    is_full = busy >= at["full_link_share"]
    likely, high = (round(found.ns * max(1 - rate / each, 0.0)) for each in (best, most))
    yield Finding(
        rule="slow-host-link",
        saving_ns_per_step=Saving(0, likely, high),
        confidence="medium",
        values={
            "gigabytes_per_second": rate / 1e9,
            "peak_gigabytes_per_second": peak / 1e9,
            "likely_gigabytes_per_second": best / 1e9,
            "most_gigabytes_per_second": most / 1e9,
            "rate_percent": percent(rate / peak),
            "exposed_ms": ms(found.ns),
            "exposed_percent": percent(found.share),
            "full_link_percent": percent(busy) if is_full else 0,
            "free_link_percent": 0 if is_full or np.isnan(busy) else percent(busy),
        },
        evidence=(
            Measure("usual rate of a large copy", rate, "bytes_per_second"),
            Measure("the GPU's host link, one way", peak, "bytes_per_second"),
            *transfers.pinned_evidence(worst),
            *(() if np.isnan(busy) else (Measure("how busy the link was, by the GPU's counters", busy, "share"),)),
            Measure("large pinned copies with nothing beside them", found.ns, "ns"),
        ),
        situation="older-slot" if rate >= older else "",
    )

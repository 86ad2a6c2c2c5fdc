"""How fast would this machine copy between host and device if the host memory were pinned?

The best that is known counts: pinned copies in the recording, then those that were measured on the machine, then what
its link gives less PCIe's protocol.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.links import PCIE_PAYLOAD_SHARE
from perfdoctor.metrics.copies.costs import links_of_places
from perfdoctor.metrics.copies.transfers import copies_of, host_memory, sharing_ns, sizes
from perfdoctor.metrics.work.device_peaks import measured
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Mask

#: A copy of at least half of the size is comparable: latency differs by little.
_COMPARABLE = 0.5
#: Of smaller copies those count whose bytes take longer than their latency of 5 to 10 µs, on any link up to PCIe 5;
_LEAST_BYTES = 512 << 10
#: latency is what those take that carry next to nothing.
_LATENCY_BYTES = 64 << 10
#: While another copy crosses the link, a copy gets half of it: sharing for a tenth of its time slows it by a twentieth.
_SHARED = 0.1


class PinnedRate(Struct, frozen=True):
    """Bytes/s of a pinned copy; 0: unknown. `measured`: by the selftest; `link`: what it gives at most."""

    bytes_per_second: float
    source: Literal["recording", "measured", "link", ""]

    def ns(self, size: float) -> float:
        """The ns that a copy of `size` bytes takes."""
        return size / self.bytes_per_second * 1e9


def pinned_rate(run: Run, place: Place, direction: str, size: float) -> PinnedRate:
    """The rate of pinned copies of `size` bytes in a direction, `h2d` or `d2h`."""
    if recorded := _recorded(place, direction, size):
        return PinnedRate(recorded, "recording")
    rates = measured(place)
    if rates and "host_link" not in place.timeline.user_values.peaks and (one := rates.one(f"{direction}_pinned")):
        return PinnedRate(one, "measured")
    link = links_of_places(run)[place.rank_and_device]
    return PinnedRate(PCIE_PAYLOAD_SHARE * link, "link") if link else PinnedRate(0.0, "")


def _recorded(place: Place, direction: str, size: float) -> float:
    """The usual rate of comparable pinned copies in the recording, in bytes/s; 0 without any.

    Of smaller ones the latency is taken off, which the quickest copy shows: time = latency + bytes / rate.
    """
    pinned = copies_of(place, direction) & host_memory(place, "pinned") & (sizes(place) > 0)
    alone = pinned & (sharing_ns(place) <= _SHARED * place.copies.duration_ns)
    if (large := alone & (sizes(place) >= _COMPARABLE * size)).any():
        return _usual(place, large, 0)
    smaller, quickest = alone & (sizes(place) >= _LEAST_BYTES), pinned & (sizes(place) <= _LATENCY_BYTES)
    latency_ns = int(place.copies.duration_ns[quickest].min()) if quickest.any() else 0
    return _usual(place, smaller, latency_ns) if smaller.any() else 0.0


def _usual(place: Place, rows: Mask, latency_ns: int) -> float:
    took_ns: Floats = np.maximum(place.copies.duration_ns[rows] - latency_ns, 1).astype(np.float64)
    return float(np.median(sizes(place)[rows] / took_ns)) * 1e9

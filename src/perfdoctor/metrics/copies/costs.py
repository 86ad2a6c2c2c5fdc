"""What did copies cost, by direction, host memory and size: how often, how fast, and how fast could they be?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.links import PCIE_PAYLOAD_SHARE, link_of, pcie_bytes_per_second
from perfdoctor.metrics import grouping
from perfdoctor.metrics.copies.transfers import asked_by, copies_of, host_memory, sharing_ns, sizes
from perfdoctor.metrics.grouping import GroupSpread
from perfdoctor.metrics.machine.gpu_samples import SampledGpu, of_places
from perfdoctor.metrics.placed_groups import PlacedGroups, below_each_other
from perfdoctor.metrics.work.device_peaks import measured, peaks
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask, Text

#: Where one class of sizes ends and the next begins, in bytes: below the first latency is all, above the last the link.
SIZE_EDGES = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
#: A GPU that does so much at least while it is sampled is at work (as for the rules about links).
_AT_WORK = 0.5


class CopyCosts(Struct, frozen=True):
    """One element a group, the longest in all first; `per_step` numbers are of an average place.

    `size_classes`: the place among SIZE_EDGES, UNKNOWN where sizes are not recorded. `ops`: what launched the group, ""
    if unknown. `sizes`: bytes of each copy; `took`: ns. `rate`: the median of the copies' own rates, in bytes/s.
    `exposed_ns_per_step`: with no kernel and no collective beside them. `bound`: what the link or the memory gives at
    most, in bytes/s; NaN where that is not known.
    """

    directions: tuple[str, ...]
    host_memories: tuple[str, ...]
    size_classes: Ints
    ops: tuple[str, ...]
    sizes: GroupSpread
    took: GroupSpread
    count_per_step: Floats
    bytes_per_step: Floats
    ns_per_step: Floats
    exposed_ns_per_step: Floats
    rate: Floats
    bound: Floats

    def __len__(self) -> int:
        return len(self.directions)


def copy_costs(run: Run, *, by_op: bool = False) -> CopyCosts | None:
    """Costs of copies by direction, host memory and size class, or instead of the last by the op that asked (`by_op`).

    None where no copy ran in a window.
    """
    copies = _copies(run, by_op=by_op)
    if copies is None:
        return None
    direction, memory, size = copies.frame.text("direction"), copies.frame.text("host_memory"), copies.frame["bytes"]
    size_class = np.where(size < 0, UNKNOWN, np.searchsorted(SIZE_EDGES, size, side="right"))
    kind = copies.op.codes.astype(np.int64) if by_op else size_class
    group, first = grouping.combined(direction.codes.astype(np.int64), memory.codes.astype(np.int64), kind)
    groups = PlacedGroups(run.places, copies.place, group, copies.inside_ns, first.size)
    took, sized, known = copies.frame.duration_ns, size >= 0, np.maximum(size, 0)
    rates = (known / np.maximum(took, 1) * 1e9).astype(np.int64)
    of = first[groups.order]
    return CopyCosts(
        directions=tuple(direction.take(of)),
        host_memories=tuple(memory.take(of)),
        size_classes=size_class[of],
        ops=tuple(copies.op.take(of)),
        sizes=groups.spread(size, sized),
        took=groups.spread(took),
        count_per_step=groups.per_step(groups.runs()),
        bytes_per_step=groups.per_step(known),
        ns_per_step=groups.per_step(copies.inside_ns),
        exposed_ns_per_step=groups.per_step(copies.exposed_ns),
        rate=groups.spread(rates, sized).median,
        bound=_bounds(run, copies, group)[groups.order],
    )


class _Copies(Struct, frozen=True):
    """All places' copies below each other: where each stands in `run.places`, and what launched it, "" if unknown."""

    frame: Frame
    place: Ints
    op: Text
    inside_ns: Ints
    exposed_ns: Ints


def _copies(run: Run, *, by_op: bool) -> _Copies | None:
    with_any = [(number, place) for number, place in enumerate(run.places) if len(place.copies)]
    if not with_any:
        return None
    frames = [place.copies for _, place in with_any]
    frame = below_each_other(frames, ("start_ns", "end_ns", "bytes", "direction", "host_memory"))

    def overlap(pieces_of: Callable[[Place], Intervals]) -> Ints:
        each = zip(with_any, frames, strict=True)
        return np.concatenate([pieces_of(place).overlap_ns(rows.start_ns, rows.end_ns) for (_, place), rows in each])

    return _Copies(
        frame,
        np.concatenate([np.full(len(rows), number) for (number, _), rows in zip(with_any, frames, strict=True)]),
        Text.join([asked_by(place) for _, place in with_any]) if by_op else Text.constant("", len(frame)),
        overlap(lambda place: place.window),
        overlap(lambda place: place.exposed_copies),
    )


@once_per_run
def links_of_places(run: Run) -> Mapping[tuple[int, int], float]:
    """What the link between each place's GPU and the host gives at most, one way, in bytes/s; 0: unknown."""
    sampled = of_places(run, _AT_WORK)
    found = {}
    for place in run.places:
        known, gpu = peaks(place), sampled.get(place.rank_and_device)
        links = (known.host_link_bytes_per_second if known else 0.0, _sampled_link(gpu) if gpu else 0.0)
        found[place.rank_and_device] = min((link for link in links if link), default=0.0)
    return found


def _bounds(run: Run, copies: _Copies, group: Ints) -> Floats:
    """The bound of each group's fastest place in bytes/s; NaN where none is known."""
    links, direction = links_of_places(run), copies.frame.text("direction")
    bounds = [[_bound(place, name, links[place.rank_and_device]) for name in direction.values] for place in run.places]
    each = np.array(bounds)[copies.place, direction.codes]
    most = np.full(int(group.max()) + 1, -np.inf)
    known = ~np.isnan(each)
    np.maximum.at(most, group[known], each[known])
    return np.where(np.isfinite(most), most, np.nan)


def _bound(place: Place, direction: str, host_link: float) -> float:
    """The most bytes/s that copies in this direction can reach; NaN where it is unknown.

    On the device a copy reads and writes all of it, a memset only writes.
    """
    if direction in ("h2d", "d2h"):
        return host_link or np.nan
    if direction == "p2p":
        link = link_of(place.info.name)
        return link.between_bytes_per_second if link else np.nan
    known = peaks(place)
    memory = known.memory_bytes_per_second if known else place.info.memory_bytes_per_second
    return {"d2d": memory / 2, "memset": float(memory)}.get(direction, np.nan) or np.nan


def _sampled_link(gpu: SampledGpu) -> float:
    """Bytes/s of the best link that was sampled, as links rest in a lower generation while nothing crosses them."""
    columns = (gpu.floats(name) for name in ("pcie_generation", "pcie_width"))
    generation, width = (float(np.nan_to_num(column).max(initial=0)) for column in columns)
    return pcie_bytes_per_second(generation, width)


# --- pinned ---


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
    """The rate of pinned copies of `size` bytes in a direction, `h2d` or `d2h`.

    The best that is known counts: pinned copies in the recording, then those that were measured on the machine, then
    what its link gives less PCIe's protocol.
    """
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
    """The median rate of these copies in bytes/s, without the latency of each."""
    took_ns: Floats = np.maximum(place.copies.duration_ns[rows] - latency_ns, 1).astype(np.float64)
    return float(np.median(sizes(place)[rows] / took_ns)) * 1e9

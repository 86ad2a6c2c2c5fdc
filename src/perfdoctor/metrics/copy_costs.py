"""What did copies cost, by direction, host memory and size: how often, how fast, and what could their link do?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.hardware.links import link_of
from perfdoctor.metrics import grouping
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.device_peaks import peaks
from perfdoctor.metrics.device_state import Gpu, of_places
from perfdoctor.metrics.grouping import Floats, Spread
from perfdoctor.metrics.kernel_costs import per_step
from perfdoctor.metrics.pcie import bytes_per_second
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.transfers import asked_by
from perfdoctor.timeline.model import UNKNOWN, Ints, Text

#: Where one class of sizes ends and the next begins, in bytes: below the first latency is all, above the last the link.
SIZE_EDGES = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
#: A GPU that does so much at least while it is sampled is at work (as for the rules about links).
_AT_WORK = 0.5


@dataclass(frozen=True)
class CopyCosts:
    """One element a group, the longest in all first; `per_step` numbers are of an average place.

    `size_classes`: the place among SIZE_EDGES, UNKNOWN where sizes are not told. `ops`: what asked for the group, "" if
    not told. `sizes`: bytes of each copy; `took`: ns. `rate`: the median of the copies' own rates, in bytes/s.
    `exposed_ns_per_step`: with no kernel and no collective beside them. `bound`: what the link or the memory gives at
    most, in bytes/s; NaN where that is not known.
    """

    directions: tuple[str, ...]
    host_memories: tuple[str, ...]
    size_classes: Ints
    ops: tuple[str, ...]
    sizes: Spread
    took: Spread
    ns: Floats
    count_per_step: Floats
    bytes_per_step: Floats
    ns_per_step: Floats
    exposed_ns_per_step: Floats
    rate: Floats
    bound: Floats

    def __len__(self) -> int:
        return len(self.directions)


def copy_costs(run: Run, *, by_op: bool = False) -> CopyCosts | None:
    """By direction, host memory and size class; or, `by_op`, by direction, host memory and the op that asked.

    None where no copy ran in a window.
    """
    places = [place for place in run.places if len(place.copies)]
    if not places:
        return None
    direction = Text.join([place.copies.text("direction") for place in places])
    memory = Text.join([place.copies.text("host_memory") for place in places])
    size = np.concatenate([place.copies["bytes"] for place in places])
    size_class = np.where(size < 0, UNKNOWN, np.searchsorted(SIZE_EDGES, size, side="right"))
    op = Text.join([asked_by(place) for place in places]) if by_op else Text.constant("", size.size)
    kind = op.codes.astype(np.int64) if by_op else size_class
    group, first = grouping.combined(direction.codes.astype(np.int64), memory.codes.astype(np.int64), kind)
    count = first.size
    number = np.concatenate([np.full(len(place.copies), at) for at, place in enumerate(places)])
    took = np.concatenate([place.copies.duration_ns for place in places])
    inside, exposed = (
        np.concatenate([pieces.overlap_ns(place.copies.start_ns, place.copies.end_ns) for place, pieces in each])
        for each in (
            [(place, place.window) for place in places],
            [(place, place.exposed_copies) for place in places],
        )
    )
    total = grouping.sums(group, inside, count)
    order = np.lexsort((np.arange(count), -total))

    def each_step(quantity: Ints) -> Floats:
        cells = grouping.sums(number * count + group, quantity, len(places) * count).reshape(len(places), count)
        # Places without any copy count as well: they have none of these.
        return (per_step(cells, tuple(places)) * (len(places) / len(run.places)))[order]

    known = np.maximum(size, 0)
    rates = np.where(size >= 0, known / np.maximum(took, 1) * 1e9, 0).astype(np.int64)
    told = size >= 0
    of_class = first[order]
    return CopyCosts(
        directions=tuple(direction[row] for row in of_class.tolist()),
        host_memories=tuple(memory[row] for row in of_class.tolist()),
        size_classes=size_class[of_class],
        ops=tuple(op[row] for row in of_class.tolist()),
        sizes=grouping.spread(group[told], size[told], count).take(order),
        took=grouping.spread(group, took, count).take(order),
        ns=total[order],
        count_per_step=each_step(np.ones(size.size, np.int64)),
        bytes_per_step=each_step(known),
        ns_per_step=each_step(inside),
        exposed_ns_per_step=each_step(exposed),
        rate=grouping.spread(group[told], rates[told], count).median[order],
        bound=_bounds(run, places, number, group, direction)[order],
    )


def _bounds(run: Run, places: list[Place], number: Ints, group: Ints, direction: Text) -> Floats:
    """Of each group the fastest of its places; NaN where none is known."""
    sampled = of_places(run, _AT_WORK)
    told = [
        [_bound(place, name, sampled.get((place.rank, place.device or 0))) for name in direction.values]
        for place in places
    ]
    each = np.array(told)[number, direction.codes]
    most = np.full(int(group.max()) + 1, -np.inf)
    known = ~np.isnan(each)
    np.maximum.at(most, group[known], each[known])
    return np.where(np.isfinite(most), most, np.nan)


def _bound(place: Place, direction: str, sampled: Gpu | None) -> float:
    """In bytes/s, one way. On the device a copy reads and writes all of it, a memset only writes."""
    known = peaks(place)
    if direction in ("h2d", "d2h"):
        links = (known.host_link_bytes_per_second if known else 0.0, _sampled_link(sampled))
        return min((link for link in links if link), default=np.nan)
    if direction == "p2p":
        link = link_of(place.info.name)
        return link.peak_bytes_per_second if link else np.nan
    memory = known.memory_bytes_per_second if known else place.info.memory_bytes_per_second
    return {"d2d": memory / 2, "memset": float(memory)}.get(direction, np.nan) or np.nan


def _sampled_link(sampled: Gpu | None) -> float:
    """The best that was seen: links rest in a lower generation while nothing crosses them. 0 where it was not told."""
    if sampled is None:
        return 0.0
    generation, width = (
        np.nan_to_num(sampled.floats(name)).max(initial=0) for name in ("pcie_generation", "pcie_width")
    )
    return bytes_per_second(float(generation), float(width))

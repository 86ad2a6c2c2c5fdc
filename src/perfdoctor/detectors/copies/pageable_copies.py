"""Copies between the device and host memory that is not pinned, where they cost time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.affected import affected
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.copies.costs import PinnedRate, pinned_rate
from perfdoctor.metrics.copies.transfers import before_work_begins, compute_stream, host_memory
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Frame
from perfdoctor.records.findings import Finding, Measure

#: How much longer a pinned copy may take, by where its rate is from. Measured rates of one machine lie within a tenth;
#: a data sheet's link may be in a slot of the generation before, which gives half.
_AT_WORST = {"recording": 1.1, "measured": 1.1, "link": 2.0}
_SOURCES = {
    "recording": "pinned copies in this recording",
    "measured": "pinned copies when this machine was measured",
    "link": "what the link gives pinned copies",
}
_DERIVED_FROM = {"": "table", "link": "data-sheet", "measured": "measured", "recording": "recording"}


def _pageable(place: Place) -> Frame:
    return place.copies.take(host_memory(place, "pageable") & ~before_work_begins(place))


def _exposed_ns(place: Place) -> int:
    rows = _pageable(place)
    return (rows.intervals & place.exposed_copies).total_ns


class _Pinned(Struct, frozen=True):
    """Duration of each of these copies from pinned memory, likely and at worst, and the rate by direction."""

    took_ns: Floats
    at_worst_ns: Floats
    rates: Mapping[str, PinnedRate]

    @property
    def source(self) -> str:
        """The less certain source of the rates, as derivations name it."""
        found = {rate.source for rate in self.rates.values()}
        return next(_DERIVED_FROM[source] for source in ("", "link", "measured", "recording") if source in found)


def _pinned(run: Run, place: Place, rows: Frame, assumed: float) -> _Pinned:
    """The copies from pinned memory, none slower than now; `assumed` times as fast where the link is not known."""
    direction, now_ns, size = rows.text("direction"), np.maximum(rows.duration_ns, 1).astype(float), rows["bytes"]
    took_ns, at_worst_ns = now_ns / assumed, now_ns.copy()
    rates = {}
    for name in set(direction):
        mine = direction.equals(name)
        rates[name] = rate = pinned_rate(run, place, name, float(np.median(size[mine])))
        if rate.source:
            mine = mine & (size > 0)
            took_ns[mine] = np.minimum(size[mine] / rate.bytes_per_second * 1e9, now_ns[mine])
            at_worst_ns[mine] = np.minimum(took_ns[mine] * _AT_WORST[rate.source], now_ns[mine])
    return _Pinned(took_ns, at_worst_ns, rates)


class _Left(Struct, frozen=True):
    """What is left of the exposed time with pinned memory, as shares of it: likely (`pinned`) and `at_worst`.

    `beside`: what of that runs beside compute then, which nothing in the compute stream does; `beside_at_most`: what
    compute would hide in another stream, too.
    """

    pinned: float
    at_worst: float
    beside: float
    beside_at_most: float


def _left(place: Place, rows: Frame, pinned: _Pinned) -> _Left:
    exposed = place.exposed_copies.overlap_ns(rows.start_ns, rows.end_ns)
    share = exposed / max(int(exposed.sum()), 1) / np.maximum(rows.duration_ns, 1)
    left, at_worst = share * pinned.took_ns, share * pinned.at_worst_ns
    to_device, free_ns = rows.text("direction").equals("h2d"), (place.compute - place.copying).total_ns
    free = free_ns / max(int(exposed.sum()), 1)
    beside = to_device & (rows["stream"] != compute_stream(place))
    hidden = (min(float(left[mine].sum()), free) for mine in (beside, to_device))
    return _Left(min(float(left.sum()), 1.0), min(float(at_worst.sum()), 1.0), *hidden)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed pageable copies; one that compute hides, or of a few bytes, is no finding."""
    found = affected(run, _exposed_ns, at["min_share_of_step"])
    if found is None:
        return
    worst, rows = found.worst, _pageable(found.worst)
    size = int(np.maximum(rows["bytes"], 0).sum())
    rate = size / max(int(rows.duration_ns.sum()), 1)  # bytes per ns = GB/s
    pinned = _pinned(run, worst, rows, at["pinned_speedup"])
    left = _left(worst, rows, pinned)
    won = Shares(1 - left.at_worst, 1 - left.pinned + left.beside, 1 - left.pinned + left.beside_at_most)
    known = [each for each in pinned.rates.values() if each.source]
    are_measured = all(each.source in ("recording", "measured") for each in pinned.rates.values())
    slowest = min(known, key=lambda each: each.bytes_per_second, default=None)
    rates = [Measure(_SOURCES[slowest.source], slowest.bytes_per_second, "bytes_per_second")] if slowest else []
    yield Finding(
        rule="pageable-copies",
        saving_ns_per_step=won.of(found.ns),
        confidence="high" if are_measured else "medium",
        values={
            **found.time_values("exposed"),
            "megabytes": size / worst.units / 1e6,
            "gigabytes_per_second": rate,
            "pinned_ms": ms(found.ns * left.pinned),
            "at_worst_ms": ms(found.ns * left.at_worst),
            "beside_ms": ms(found.ns * left.beside),
            "beside_at_most_ms": ms(found.ns * left.beside_at_most),
        },
        evidence=(
            Measure("pageable copies with no kernel beside them", found.ns, "ns"),
            Measure("bytes a step", size / worst.units, "bytes"),
            Measure("rate", rate * 1e9, "bytes_per_second"),
            *rates,
            *longest_exposed(run, "copies", lambda place: place.copies.text("host_memory").equals("pageable")),
        ),
        sources=dict.fromkeys(("pinned_ms", "at_worst_ms"), pinned.source),
    )

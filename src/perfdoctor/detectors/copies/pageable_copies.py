"""Copies between the device and host memory that is not pinned, where they cost time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.affected import affected
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.copies.costs import PinnedRate, pinned_rate
from perfdoctor.metrics.copies.transfers import (
    NEARLY_ALL,
    before_work_begins,
    compute_stream,
    host_memory,
    pageable_to_host_share,
)
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats, Frame
from perfdoctor.records.findings import Finding, Measure

#: How much longer a pinned copy may take where pinned ones were timed: rates of one machine lie within a tenth.
_AT_WORST = 1.1
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
    """Duration of each of these copies from pinned memory, likely, at best and at worst, and the rate by direction."""

    took_ns: Floats
    at_best_ns: Floats
    at_worst_ns: Floats
    rates: Mapping[str, PinnedRate]

    @property
    def source(self) -> str:
        """The less certain source of the rates, as derivations name it."""
        found = {rate.source for rate in self.rates.values()}
        return next(_DERIVED_FROM[source] for source in ("", "link", "measured", "recording") if source in found)


def _pinned(run: Run, place: Place, rows: Frame, at: Mapping[str, float]) -> _Pinned:
    """The copies from pinned memory, none slower than now.

    Where none were timed they are as many times as fast as elsewhere, as the host's memory and the way to its link set
    their rate as well; the link itself says what is best.
    """
    direction, now_ns, size = rows.text("direction"), np.maximum(rows.duration_ns, 1).astype(float), rows["bytes"]
    took_ns, at_worst_ns = now_ns / at["pinned_speedup"], now_ns.copy()
    at_best_ns = took_ns.copy()
    rates = {}
    for name in set(direction):
        mine = direction.equals(name)
        rates[name] = rate = pinned_rate(run, place, name, float(np.median(size[mine])))
        if rate.source:
            mine = mine & (size > 0)
            by_rate_ns = np.minimum(size[mine] / rate.bytes_per_second * 1e9, now_ns[mine])
            at_best_ns[mine] = by_rate_ns
            if rate.source == "link":
                took_ns[mine] = np.maximum(took_ns[mine], by_rate_ns)
                at_worst_ns[mine] = np.maximum(now_ns[mine] / at["pinned_speedup_low"], by_rate_ns)
            else:
                took_ns[mine] = by_rate_ns
                at_worst_ns[mine] = np.minimum(by_rate_ns * _AT_WORST, now_ns[mine])
    return _Pinned(took_ns, at_best_ns, at_worst_ns, rates)


class _Left(Struct, frozen=True):
    """What is left of the exposed time with pinned memory, as shares of it: likely (`pinned`), `at_best`, `at_worst`.

    `beside`: what of that runs beside compute then, which nothing in the compute stream does; `beside_at_most`: what
    compute would hide in another stream, too.
    """

    pinned: float
    at_best: float
    at_worst: float
    beside: float
    beside_at_most: float


def _left(place: Place, rows: Frame, pinned: _Pinned) -> _Left:
    exposed = place.exposed_copies.overlap_ns(rows.start_ns, rows.end_ns)
    share = exposed / max(int(exposed.sum()), 1) / np.maximum(rows.duration_ns, 1)
    left, at_best, at_worst = (share * ns for ns in (pinned.took_ns, pinned.at_best_ns, pinned.at_worst_ns))
    to_device, free_ns = rows.text("direction").equals("h2d"), (place.compute - place.copying).total_ns
    free = free_ns / max(int(exposed.sum()), 1)
    beside = to_device & (rows["stream"] != compute_stream(place))
    hidden = (min(float(ns[mine].sum()), free) for ns, mine in ((left, beside), (at_best, to_device)))
    return _Left(*(min(float(ns.sum()), 1.0) for ns in (left, at_best, at_worst)), *hidden)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed pageable copies; one that compute hides, or of a few bytes, is no finding."""
    found = affected(run, _exposed_ns, at["min_share_of_step"])
    if found is None:
        return
    worst, rows = found.worst, _pageable(found.worst)
    size = int(np.maximum(rows["bytes"], 0).sum())
    rate = size / max(int(rows.duration_ns.sum()), 1)  # bytes per ns = GB/s
    pinned = _pinned(run, worst, rows, at)
    left = _left(worst, rows, pinned)
    won = Shares(1 - left.at_worst, 1 - left.pinned + left.beside, 1 - left.at_best + left.beside_at_most)
    known = [each for each in pinned.rates.values() if each.source]
    are_measured = all(each.source in ("recording", "measured") for each in pinned.rates.values())
    slowest = min(known, key=lambda each: each.bytes_per_second, default=None)
    to_host = pageable_to_host_share(worst)
    situation = "to-host" if to_host >= NEARLY_ALL else "both-ways" if to_host > 1 - NEARLY_ALL else ""
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
            "at_best_ms": ms(found.ns * left.at_best),
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
        situation=situation,
        symptom_of=("results-copied-back",)
        if situation == "to-host"
        else (),  # what is not copied needs no pinned memory
        sources=dict.fromkeys(("pinned_ms", "at_best_ms", "at_worst_ms"), pinned.source),
    )

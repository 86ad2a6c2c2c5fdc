"""Copies that run while no kernel does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.affected import MOST_OF_IT, affected
from perfdoctor.detectors.of_work import hideable_ns
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.copies.transfers import before_work_begins, copies_of, halvable, host_memory
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.units import ms
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure, Rows


def _rows(place: Place) -> Mask:
    """One bool a copy: does it count here? Copies from and to pageable memory belong to pageable-copies."""
    return ~host_memory(place, "pageable") & ~before_work_begins(place)


def _exposed(place: Place) -> Intervals:
    copies, pageable = place.copies.take(_rows(place)), place.copies.take(host_memory(place, "pageable"))
    theirs = pageable.intervals  # while both run, the slower kind is to blame
    return (copies.intervals & place.exposed_copies) - theirs


def _exposed_ns(place: Place) -> int:
    return _exposed(place).total_ns


def _halved_ns(place: Place, share: float, *, with_unknown: bool) -> float:
    """Ns of the window that elements of half the width would save of copies whose type can be halved.

    `share`: what half the width saves of a copy's time; `with_unknown`: also of copies whose type is not known.
    """
    copies, (can, known) = place.copies, halvable(place)
    rows = _rows(place) & copies_of(place, "h2d", "d2h") & ((can | ~known) if with_unknown else can)
    return share * (Intervals.of(copies.start_ns[rows], copies.end_ns[rows]) & _exposed(place)).total_ns


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed copies; compute can hide them, or half of the bytes go, whichever saves more."""
    found = affected(run, _exposed_ns, at["min_share_of_step"])
    if found is None:
        return
    share = at["volume_reducible_share"]
    hidden_ns = min(run.mean(lambda place: hideable_ns(place, _exposed_ns(place))), found.ns)
    halved_ns = run.mean(lambda place: _halved_ns(place, share, with_unknown=False))
    halved_at_most_ns = run.mean(lambda place: _halved_ns(place, share, with_unknown=True))
    table = directions(found.worst)
    direction = str(table.rows[0][0])
    situation = "to-host" if direction == "d2h" else ""
    if hidden_ns < MOST_OF_IT * found.ns:
        situation = "copy-bound"  # too little compute to hide them behind
    if direction in ("d2d", "memset"):
        situation = "on-device"
    yield Finding(
        rule="exposed-copies",
        # At most both: half of the bytes, and of the rest what compute hides.
        saving_ns_per_step=half_certain(max(hidden_ns, halved_ns), min(hidden_ns + halved_at_most_ns, found.ns)),
        confidence="high" if hidden_ns >= halved_at_most_ns else "medium",
        values={
            **found.time_values("exposed"),
            "direction": direction,
            "gigabytes_per_second": float(table.rows[0][4]) / 1e9,
            "hideable_ms": ms(hidden_ns),
            "halved_ms": ms(halved_ns),
            "halved_at_most_ms": ms(halved_at_most_ns),
        },
        evidence=(
            Measure("copies with no kernel beside them", found.ns, "ns"),
            Measure("compute that could hide them", hidden_ns, "ns"),
            table,
        ),
        situation=situation,
        work=work_of(run, _rows),
        affected_ns=found.ns,
    )


def directions(place: Place) -> Rows:
    """The place's copies that count here by direction, those that are exposed longest first."""
    copies = place.copies.take(_rows(place))
    direction = copies.text("direction")
    ns = place.window.overlap_ns(copies.start_ns, copies.end_ns)
    exposed = place.exposed_copies.overlap_ns(copies.start_ns, copies.end_ns)
    rows = []
    for code in np.unique(direction.codes).tolist():
        mine = direction.codes == code
        size, total = int(np.maximum(copies["bytes"][mine], 0).sum()), int(ns[mine].sum())
        rate = size / (total / 1e9) if total else 0.0
        count, exposed_ns = mine.sum() / place.units, int(exposed[mine].sum() / place.units)
        rows.append((direction.values[code], count, exposed_ns, size // place.units, rate))
    rows.sort(key=lambda row: -row[2])
    return Rows(
        f"Copies of rank {place.rank}, a step",
        ("direction", "count", "exposed", "bytes", "rate"),
        ("text", "count", "ns", "bytes", "bytes_per_second"),
        tuple(rows),
    )

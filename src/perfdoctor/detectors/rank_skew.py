"""Ranks stand in collectives and wait for one that comes late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfdoctor.findings import Finding, Measure, Rows, Saving
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.host_pace import spare_ns
from perfdoctor.metrics.lateness import excess_ns
from perfdoctor.metrics.merged_collectives import evened_ns
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.skew import Skew, skew
from perfdoctor.metrics.units import ms, percent
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.model import UNKNOWN

#: Causes of idle in which the host issued or ran something else: one remedy, one word.
_HOST = ("host_sync", "launch_bound", "host_work", "allocator", "storage", "garbage_collection", "compilation")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """The late rank is the one that waits least. Only waiting that no compute hides is counted."""
    matched = skew(run)
    if matched is None or not matched.duration_ns.sum():
        return
    # Of a process with several devices the one that its collectives run on.
    places = [place for place in run.places if place.rank in matched.ranks and len(place.collectives)]
    units = min(place.units for place in places)
    # The late rank waits for nobody: what the others expose, and the part of it that is waiting. Collectives at the
    # same time are waited for once.
    others = [place for place in places if place.rank != matched.late_rank]
    exposed = np.mean([_exposed_ns(place, matched) / place.units for place in others])
    spent_ns = float(matched.spent_ns[matched.others].mean())
    waiting_ns = int(exposed * float(matched.waiting_ns[matched.others].mean()) / spent_ns)
    waiting_ns = min(waiting_ns, _spare_ns(places, matched.late_rank, waiting_ns))
    if run.host_places:  # what ranks that are late by turns wait for each other goes with the meetings
        waiting_ns = max(waiting_ns - evened_ns(run, matched), 0)
    if waiting_ns < at["min_share_of_step"] * run.step_ns:
        return
    late = next(place for place in places if place.rank == matched.late_rank)
    instead = {name: ns for name, ns in excess_ns(places, matched)[late.rank].items() if ns}
    main = max(instead, key=lambda name: instead[name], default="")
    share = instead.get(main, 0) / max(sum(instead.values()), 1)
    likely = min(int(exposed * matched.cost_of_late_rank_ns / spent_ns), waiting_ns)
    is_clear = _late_share(matched) >= at["clear_culprit_share"]
    yield Finding(
        rule="rank-skew",
        saving_ns_per_step=Saving(likely // 2, likely, waiting_ns),
        confidence="high" if is_clear else "medium",
        values={
            "late_rank": matched.late_rank,
            "waiting_ms": ms(waiting_ns),
            "step_ms": ms(run.step_ns),
            "waiting_percent": percent(waiting_ns / run.step_ns),
            "caused_percent": percent(_late_share(matched)),
            "instead_percent": percent(share),
        },
        evidence=(
            Measure("mean wait of a rank in collectives", waiting_ns, "ns"),
            Measure("the same collectives once all had come", matched.transfer_ns / units, "ns"),
            _table(matched, units),
            _instead(late, instead, units),
        ),
        situation=_situation(main) if share >= at["clear_culprit_share"] else "",
        # Where no rank is the clear culprit nobody knows what would be if one came in time.
        work={(late.rank, late.device or 0): np.ones(len(late.kernels), dtype=bool)} if is_clear else {},
        counted_ns=likely,
    )


def _instead(late: Place, instead: Mapping[str, int], units: int) -> Rows:
    rows = sorted(instead.items(), key=lambda row: -row[1])
    return Rows(
        f"What rank {late.rank} spends more time on than the middle one of the others, a step",
        ("what", "time"),
        ("text", "ns"),
        tuple((name.replace("_", " "), ns // units) for name, ns in rows),
    )


def _exposed_ns(place: Place, matched: Skew) -> int:
    """How long the collectives of which it is known who came last are exposed: of sends and broadcasts nobody knows."""
    rows = matched.rows[matched.ranks.index(place.rank)]
    frame = place.recorded_collectives.take(rows[rows != UNKNOWN])
    return (Intervals.of(frame.start_ns, frame.end_ns) & place.exposed_communication).total_ns


def _spare_ns(places: Sequence[Place], late_rank: int, otherwise: int) -> int:
    """What the hosts of the others have to spare a step, in the middle: no more can be won of their waiting."""
    spare = [
        otherwise if (own := spare_ns(place)) is None else own // place.units
        for place in places
        if place.rank != late_rank
    ]
    return int(np.median(spare))


def _situation(main: str) -> str:
    """The words that fit what it mainly spends more time on."""
    if main in _HOST:
        return "host"
    return {"compute": "compute", "copies": "copies", "input_wait": "input"}.get(main, "")


def _late_share(matched: Skew) -> float:
    """How much of all lateness is the late rank's."""
    late = matched.ranks.index(matched.late_rank)
    return float(matched.caused_ns[late] / max(matched.caused_ns.sum(), 1))


def _table(matched: Skew, units: int) -> Rows:
    rows = [
        (rank, int(total / units), int(wait / units), int(caused / units))
        for rank, total, wait, caused in zip(
            matched.ranks, matched.spent_ns, matched.waiting_ns, matched.caused_ns, strict=True
        )
    ]
    rows.sort(key=lambda row: row[2])
    return Rows(
        "Collectives by rank",
        ("rank", "in collectives", "waiting", "was late by"),
        ("count", "ns", "ns", "ns"),
        tuple(rows[:16]),
    )

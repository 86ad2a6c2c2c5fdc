"""Ranks stand in collectives and wait for one that comes late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfdoctor.detectors.savings import half_certain
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.communication.lateness import excess_ns
from perfdoctor.metrics.communication.merged_collectives import evened_ns
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.metrics.host.pace import spare_ns
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.findings import Evidence, Finding, Measure, Rows
from perfdoctor.vocabulary.parts import IDLE_PARTS

#: Causes of idle in which the host ran something else: one remedy, one word.
_HOST = tuple(cause for cause, part in IDLE_PARTS.items() if part.waits_for == "host")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """The late rank is the one that waits least. Only waiting that no compute hides is counted."""
    matched = skew(run)
    if matched is None or not matched.duration_ns.sum():
        return
    # Of a process with several devices the one that its collectives run on.
    places = [place for place in run.places if place.rank in matched.ranks and len(place.collectives)]
    exposed_ns = _exposed_by_others_ns(places, matched)
    waiting_ns = _waiting_ns(run, places, matched, exposed_ns)
    if waiting_ns < at["min_share_of_step"] * run.step_ns:
        return
    late = next(place for place in places if place.rank == matched.late_rank)
    instead = {name: ns for name, ns in excess_ns(places, matched)[late.rank].items() if ns}
    main, share = _main(instead)
    likely = min(int(exposed_ns * matched.cost_of_late_rank_ns / _spent_by_others_ns(matched)), waiting_ns)
    is_clear = _late_share(matched) >= at["clear_culprit_share"]
    yield Finding(
        rule="rank-skew",
        saving_ns_per_step=half_certain(likely, waiting_ns),
        confidence="high" if is_clear else "medium",
        values={
            "late_rank": matched.late_rank,
            "waiting_ms": ms(waiting_ns),
            "step_ms": ms(run.step_ns),
            "waiting_percent": percent(waiting_ns / run.step_ns),
            "caused_percent": percent(_late_share(matched)),
            "instead_percent": percent(share),
        },
        evidence=_evidence(matched, waiting_ns, late, instead, min(place.units for place in places)),
        situation=_situation(main) if share >= at["clear_culprit_share"] else "",
        # Where no rank is the clear culprit it is unknown what one in time would change.
        work={(late.rank, late.device or 0): np.ones(len(late.kernels), dtype=bool)} if is_clear else {},
        affected_ns=likely,
    )


# --- how long is waited ---


def _exposed_by_others_ns(places: Sequence[Place], matched: Skew) -> float:
    """What the others expose of these collectives, a step: the late rank does not wait."""
    others = [place for place in places if place.rank != matched.late_rank]
    return float(np.mean([_exposed_ns(place, matched) / place.units for place in others]))


def _spent_by_others_ns(matched: Skew) -> float:
    return float(matched.spent_ns[matched.others].mean())


def _waiting_ns(run: Run, places: Sequence[Place], matched: Skew, exposed_ns: float) -> int:
    """The part of it that is waiting. Collectives at the same time are waited for once."""
    waiting = float(matched.waiting_ns[matched.others].mean())
    waiting_ns = int(exposed_ns * waiting / _spent_by_others_ns(matched))
    waiting_ns = min(waiting_ns, _spare_ns(places, matched.late_rank, waiting_ns))
    if host_places(run):  # what ranks that are late by turns wait goes when collectives are merged
        return max(waiting_ns - evened_ns(run, matched), 0)
    return waiting_ns


def _exposed_ns(place: Place, matched: Skew) -> int:
    """How long the collectives of which it is known who came last are exposed: not sends and broadcasts."""
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


# --- what the late rank does instead ---


def _main(instead: Mapping[str, int]) -> tuple[str, float]:
    """What the late rank mainly spends more time on, and its share of all that it does."""
    main = max(instead, key=lambda name: instead[name], default="")
    return main, instead.get(main, 0) / max(sum(instead.values()), 1)


def _situation(main: str) -> str:
    """The words that fit what it mainly spends more time on."""
    if main in _HOST:
        return "host"
    return {"compute": "compute", "copies": "copies", "input_wait": "input"}.get(main, "")


def _late_share(matched: Skew) -> float:
    """How much of all lateness is the late rank's."""
    late = matched.ranks.index(matched.late_rank)
    return float(matched.caused_ns[late] / max(matched.caused_ns.sum(), 1))


# --- evidence ---


def _evidence(
    matched: Skew, waiting_ns: int, late: Place, instead: Mapping[str, int], units: int
) -> tuple[Evidence, ...]:
    return (
        Measure("mean wait of a rank in collectives", waiting_ns, "ns"),
        Measure("the same collectives once all had come", matched.transfer_ns / units, "ns"),
        _table(matched, units),
        _instead(late, instead, units),
    )


def _instead(late: Place, instead: Mapping[str, int], units: int) -> Rows:
    rows = sorted(instead.items(), key=lambda row: -row[1])
    return Rows(
        f"What rank {late.rank} spends more time on than the middle one of the others, a step",
        ("what", "time"),
        ("text", "ns"),
        tuple((name.replace("_", " "), ns // units) for name, ns in rows),
    )


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

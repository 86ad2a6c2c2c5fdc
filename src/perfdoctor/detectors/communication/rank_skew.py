"""Ranks stand in collectives and wait for one that comes late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from perfdoctor.detectors.savings import half_certain
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.communication.lateness import excess_ns
from perfdoctor.metrics.communication.merged_collectives import evened_ns
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.metrics.host.pace import sooner_ns
from perfdoctor.metrics.host.same_work import Compared, compared
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.records.findings import Evidence, Finding, Measure, Rows
from perfdoctor.vocabulary.parts import IDLE_PARTS

#: Causes of idle in which the host ran something else: one remedy, one word.
_HOST = tuple(cause for cause, part in IDLE_PARTS.items() if part.waits_for == "host")

#: Of these the host's own speed may be the reason, too; the others say themselves what it did.
_UNNAMED = ("launch_bound", "host_work")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """The late rank is the one that waits least. Only waiting that no compute hides is counted."""
    matched = skew(run)
    if matched is None or not matched.duration_ns.sum():
        return
    # Of a process with several devices the one that its collectives run on.
    places = [place for place in run.places if place.rank in matched.ranks and len(place.collectives)]
    others = [place for place in places if place.rank != matched.late_rank]
    exposed_ns = _exposed_by_others_ns(run, others, matched)
    waiting_ns = _waiting_ns(run, matched, exposed_ns)
    most_ns = min(waiting_ns, _sooner_ns(others, np.median, waiting_ns))
    if most_ns < at["min_share_of_step"] * run.step_ns:
        return
    late = next(place for place in places if place.rank == matched.late_rank)
    instead = {name: ns for name, ns in excess_ns(places, matched)[late.rank].items() if ns}
    main, share = _main(instead)
    is_clear = min(_late_share(matched), _share_of_its_own(matched)) >= at["clear_culprit_share"]
    host = compared(late, others) if main in _HOST else None
    situation = _situation(main, host, at) if share >= at["clear_culprit_share"] else ""
    # Of a clear straggler the fix is on one rank: all others, also the last of them, must be able to go on then.
    sooner_ns = min(_sooner_ns(others, np.min, waiting_ns), most_ns) if is_clear else most_ns
    caused_ns = matched.caused_by_late_rank_ns if is_clear else matched.cost_of_late_rank_ns
    likely = min(int(exposed_ns * caused_ns / _spent_by_others_ns(matched)), sooner_ns)
    yield Finding(
        rule="rank-skew",
        saving_ns_per_step=half_certain(likely, most_ns),
        confidence="high" if is_clear else "medium",
        values={
            "rows_per_step": host.rows if host else 0.0,
            "other_rows_per_step": host.other_rows if host else 0.0,
            "slower": host.slower if host else 0.0,
            "more_ms": ms(host.more_ns) if host else 0.0,
            "late_rank": matched.late_rank,
            "waiting_ms": ms(waiting_ns),
            "step_ms": ms(run.step_ns),
            "waiting_percent": percent(waiting_ns / run.step_ns),
            "caused_percent": percent(_late_share(matched)),
            "instead_percent": percent(share),
        },
        evidence=(
            *_evidence(matched, waiting_ns, late, instead, min(place.units for place in places)),
            *(_same_calls(late.rank, host) if situation == "slower-host" and host else ()),
        ),
        situation=situation,
        explains=_symptoms(main, others, at) if is_clear else (),
        # Where no rank is the clear culprit it is unknown what one in time would change.
        work={(late.rank, late.device or 0): np.ones(len(late.kernels), dtype=bool)} if is_clear else {},
        affected_ns=likely,
    )


# --- how long is waited ---


def _exposed_by_others_ns(run: Run, others: Sequence[Place], matched: Skew) -> float:
    """What the others expose of these collectives, a step: the late rank does not wait.

    As a share of their own steps, which may be longer than the mean of all ranks.
    """
    steps_ns = sum(place.window_ns / place.units for place in others)
    return run.step_ns * sum(_exposed_ns(place, matched) / place.units for place in others) / max(steps_ns, 1)


def _spent_by_others_ns(matched: Skew) -> float:
    return float(matched.spent_ns[matched.others].mean())


def _waiting_ns(run: Run, matched: Skew, exposed_ns: float) -> int:
    """The part of it that is waiting. Collectives at the same time are waited for once."""
    waiting = float(matched.waiting_ns[matched.others].mean())
    waiting_ns = int(exposed_ns * waiting / _spent_by_others_ns(matched))
    if host_places(run):  # what ranks that are late by turns wait goes when collectives are merged
        return max(waiting_ns - evened_ns(run, matched), 0)
    return waiting_ns


def _exposed_ns(place: Place, matched: Skew) -> int:
    """How long the collectives of which it is known who came last are exposed: not sends and broadcasts."""
    rows = matched.rows[matched.ranks.index(place.rank)]
    frame = place.recorded_collectives.take(rows[rows != UNKNOWN])
    return (Intervals.of(frame.start_ns, frame.end_ns) & place.exposed_communication).total_ns


def _sooner_ns(others: Sequence[Place], which: Callable[[list[int]], float], otherwise: int) -> int:
    """By how much the hosts of the others could have been sooner a step: no more can be won of their waiting.

    `which` of them counts: the middle one, or the slowest.
    """
    known = [otherwise if (own := sooner_ns(place)) is None else own // place.units for place in others]
    return int(which(known))


# --- what the late rank does instead ---


def _main(instead: Mapping[str, int]) -> tuple[str, float]:
    """What the late rank mainly spends more time on, and its share of all that it does."""
    main = max(instead, key=lambda name: instead[name], default="")
    return main, instead.get(main, 0) / max(sum(instead.values()), 1)


def _situation(main: str, host: Compared | None, at: Mapping[str, float]) -> str:
    """The words that fit what it mainly spends more time on. `host`: its calls and ops beside the others', if known."""
    if main in _UNNAMED and host is not None and host.has_more_work:
        return "more-work"
    if main in _UNNAMED and host is not None and host.is_same_work(at["same_calls_within"]):
        return "slower-host" if host.slower >= 1 + at["slower_at_least"] else "late-host"
    if main in _HOST:
        return "late-host" if main == "launch_bound" else "host"
    return {"compute": "compute", "copies": "copies", "input_wait": "input"}.get(main, "")


def _symptoms(main: str, others: Sequence[Place], at: Mapping[str, float]) -> tuple[str, ...]:
    """Is that the late rank's device waits for its host all that launch-bound finds? The others' devices hardly do."""
    idle = float(np.mean([place.share(place.idle_ns("launch_bound")) for place in others]))
    return ("launch-bound",) if main in _HOST and idle < at["min_share_of_step"] else ()


def _late_share(matched: Skew) -> float:
    """How much of all lateness is the late rank's."""
    late = matched.ranks.index(matched.late_rank)
    return float(matched.caused_ns[late] / max(matched.caused_ns.sum(), 1))


def _share_of_its_own(matched: Skew) -> float:
    """How much of the late rank's lateness would go with it: little where another one comes just before it."""
    caused = int(matched.caused_ns[matched.ranks.index(matched.late_rank)])
    return matched.caused_by_late_rank_ns / max(caused, 1)


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


def _same_calls(rank: int, host: Compared) -> Iterator[Rows]:
    yield Rows(
        f"What rank {rank}'s host takes longer for than the middle one of the others",
        ("call or op", "a step", f"rank {rank}, each", "the others, each"),
        ("text", "count", "ns", "ns"),
        host.names,
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

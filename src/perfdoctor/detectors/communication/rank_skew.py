"""Ranks stand in collectives and wait for one that comes late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from perfdoctor.detectors.affected import MOST_OF_IT
from perfdoctor.detectors.saved_shares import at_most, half_certain
from perfdoctor.metrics.accounting.behind_idle import host_rows, innermost_with_most
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.communication import lateness
from perfdoctor.metrics.communication.by_use import mostly, table_of_uses
from perfdoctor.metrics.communication.nodes import first_ranks, spans
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.metrics.communication.waiting import Waiting, waiting
from perfdoctor.metrics.host.cpu_use import cores_allowed, without_core_ns
from perfdoctor.metrics.host.even_pause import Pause, pause_of
from perfdoctor.metrics.host.same_work import HostComparison, compared
from perfdoctor.metrics.kernels.same_kernels import is_slower_at_the_same
from perfdoctor.metrics.units import ms, percent
from perfdoctor.metrics.work.longer_where import longer_kernels, longer_within
from perfdoctor.metrics.work.op_work import explained_by_flop, more_flop, uneven_flop
from perfdoctor.model.place import JobPlace, Place, touches
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Floats
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.replay.job.waiting import replayed_waiting
from perfdoctor.vocabulary.parts import IDLE_PARTS

#: Causes of idle in which the host ran something else: one remedy, one word.
_HOST = tuple(cause for cause, part in IDLE_PARTS.items() if part.waits_for == "host")

#: Of these a line of the program's own code is the reason; of an unknown cause it is only where it was then.
_OF_CODE = (*_HOST, *(cause for cause, part in IDLE_PARTS.items() if part.waits_for == "loader"))

_MOST_ROWS = 16
#: Of these the host's own speed may be the reason, too; the others say themselves what it did.
_UNNAMED = ("launch_bound", "host_work")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the late rank, which waits least. Only waiting that no compute hides is counted."""
    matched = skew(run.job)
    if matched is None or not matched.took_ns.sum():
        return
    asked = run, matched, at["clear_culprit_share"], at["most_chance"]
    seen = replayed_waiting(*asked) or waiting(*asked)
    if seen.most_ns >= at["min_share_of_step"] * run.job.step_ns:
        yield _finding(run, matched, seen, at)


def _finding(run: Run, matched: Skew, seen: Waiting, at: Mapping[str, float]) -> Finding:
    late, others = seen.late, seen.peers
    in_full = {place.rank: place for place in run.places if len(place.collectives)}
    whole = in_full.pop(late.rank, None)  # where the job is known by summaries, calls and kernels are not
    instead = {name: ns for name, ns in lateness.excess_ns([late, *others], matched)[late.rank].items() if ns}
    main = max(instead, key=lambda name: instead[name], default="")
    share = instead.get(main, 0) / max(sum(instead.values()), 1)
    known = [in_full[other.rank] for other in others if other.rank in in_full]
    host = compared(whole, known) if whole and main in _HOST else None
    is_main = share >= at["clear_culprit_share"]
    is_uneven = bool(
        is_main and main == "compute" and whole and explained_by_flop(whole, known) >= at["clear_culprit_share"]
    )
    pause = _pause(whole, main, instead, at) if whole and is_main else None
    within = _within(whole, main, pause, at) if whole and main in _OF_CODE else ""
    if whole and is_main and main == "compute":
        within = longer_within(whole, known, at["clear_culprit_share"])
    core_ns = _longer_without_core_ns(run, seen)
    if not seen.is_clear:
        situation = _nobody(run, seen, at)
    elif is_uneven:
        situation = "uneven-work"
    elif core_ns >= MOST_OF_IT * seen.ahead_ns:
        situation = "contention"
    elif is_main and main == "compute":
        situation = "slower-compute" if _is_slower(run, seen, whole, known, at) else "compute"
    else:
        situation = _situation(main, host, within, pause, at) if is_main else ""
    # Work that is spread evenly is not gone: each rank gets a part of it, the late one, too.
    won_share = 1 - 1 / len(seen.places) if situation == "uneven-work" else 1.0
    # Which of equal ranks is late is chance: a fix may even them out, or leave them as they are.
    is_chance = situation == "chance"
    is_certain = seen.late_again.chance <= at["most_chance"]
    likely_ns = int(won_share * seen.likely_ns)
    node, units = seen.late_node, min(place.units for place in seen.places)
    together, their_share = _late_together(seen)
    return Finding(
        rule="rank-skew",
        saving_ns_per_step=at_most(max(likely_ns, seen.most_ns))
        if is_chance
        else half_certain(likely_ns, seen.most_ns),
        confidence="high" if node or (seen.is_clear and is_certain and situation != "contention") else "medium",
        values={
            "rows_per_step": host.rows if host else 0.0,
            "other_rows_per_step": host.other_rows if host else 0.0,
            "slower": host.slower if host else 0.0,
            "more_ms": ms(host.more_ns) if host else 0.0,
            "within": within,
            "pause_ms": ms(pause.ns if pause else 0.0),
            "late_rank": late.rank,
            "late_ranks": node.ranks if node else together,
            "late_ranks_percent": percent(node.share if node else their_share),
            "late_in": seen.late_again.late_in,
            "compared": seen.late_again.compared,
            "compared_what": "steps" if seen.late_again.of_steps else "stretches of the recording",
            "chance_percent": percent(seen.late_again.chance),
            "core_ms": ms(core_ns if situation == "contention" else _mean_without_core_ns(run, seen)),
            "cores": cores_allowed(run),
            "mostly": mostly(run, run.job.places, partial(_waited_each_ns, matched)),
            "waiting_ms": ms(seen.waiting_ns),
            "until_next_ms": ms(seen.until_next_ns),
            "sooner_ms": ms(seen.sooner_ns),
            "most_ms": ms(max(seen.likely_ns, seen.most_ns)),
            "step_ms": ms(run.step_ns),
            "waiting_percent": percent(seen.waiting_ns / run.step_ns),
            "caused_percent": percent(seen.late_share),
            "instead_percent": percent(share),
            "won_share": won_share,
            "more_flop_percent": percent(more_flop(whole, known)) if is_uneven and whole else 0.0,
            "slower_compute": _times_as_long(seen) if situation == "slower-compute" else 0.0,
        },
        evidence=(
            Measure("mean wait of a rank in collectives", seen.waiting_ns, "ns"),
            Measure("the same collectives once all had come", matched.transfer_ns / units, "ns"),
            _by_rank(matched, seen, units),
            _instead(late, instead, units),
            *table_of_uses(run),
            *_by_node(matched, seen, units),
            *(longer_kernels(whole, known) if whole and main == "compute" else ()),
            *([_same_calls(late.rank, host)] if situation == "slower-host" and host else []),
        ),
        situation="node" if node else situation,
        explains=_symptoms(main, late, others, at) if seen.is_clear else (),
        # Where no rank is the clear culprit it is unknown what one in time would change.
        lines_in=((late.rank, main),) if seen.is_clear and is_main and main in _OF_CODE else (),
        work={late.rank_and_device: np.ones(len(whole.kernels), dtype=bool)} if seen.is_clear and whole else {},
        affected_ns=seen.likely_ns,
        by_all_ranks=seen.is_replayed,
    )


# --- is it chance, or a lack of cores? ---


def _nobody(run: Run, seen: Waiting, at: Mapping[str, float]) -> str:
    """The situation where no rank is the straggler: several are late, or who is late changes."""
    if seen.late_again.chance <= at["most_chance"]:
        return "several"
    uneven = uneven_flop(host_places(run))
    return "chance" if uneven <= at["same_work_within"] else "by-turns"  # NaN, which is unknown, is not


def _longer_without_core_ns(run: Run, seen: Waiting) -> int:
    """For how much longer than the others' the late rank's thread was ready to run and had no core, in ns a step."""
    without = without_core_ns(run)
    others = [without[place.rank] for place in seen.peers if place.rank in without]
    return int(max(without[seen.late.rank] - np.median(others), 0)) if others and seen.late.rank in without else 0


def _mean_without_core_ns(run: Run, seen: Waiting) -> float:
    """How long the ranks' threads had no core, a mean in ns a step; 0 where that explains little of the waiting."""
    without = list(without_core_ns(run).values())
    mean = float(np.mean(without)) if without else 0.0
    return mean if mean >= MOST_OF_IT * seen.waiting_ns else 0.0


# --- what the late rank does instead ---


def _is_slower(run: Run, seen: Waiting, whole: Place | None, known: Sequence[Place], at: Mapping[str, float]) -> bool:
    """Is the same work known to take the late rank's device, or its core, longer?"""
    if seen.late.device is not None:
        return is_slower_at_the_same(run.job, seen.late, at["same_work_within"], at["slower_at_least"])
    if whole is None or not known or not abs(more_flop(whole, known)) <= at["same_work_within"]:
        return False  # also where the FLOP are unknown, which is NaN
    return _times_as_long(seen) >= 1 + at["slower_at_least"]


def _times_as_long(seen: Waiting) -> float:
    """The late rank's compute in a step as a multiple of the middle one's of the others."""
    middle = float(np.median([place.compute.total_ns / place.units for place in seen.peers]))
    return seen.late.compute.total_ns / seen.late.units / middle if middle else 1.0


def _pause(place: Place, main: str, instead: Mapping[str, int], at: Mapping[str, float]) -> Pause | None:
    """The pause of equal length in every step that is most of the late rank's extra time; None where there is none."""
    found = pause_of(place, place.idle_causes[main]) if main == "host_work" else None
    if found is None or found.apart > at["pause_alike_within"]:
        return None
    return found if found.ns * place.units >= at["clear_culprit_share"] * sum(instead.values()) else None


def _within(place: Place, main: str, pause: Pause | None, at: Mapping[str, float]) -> str:
    """The innermost range or function that the host is in for most of the time in which it launches nothing, or ""."""
    rows = host_rows(place, ("ranges", "functions"))
    pieces = pause.pieces if pause else place.idle_causes[main]
    return innermost_with_most(pieces, rows, at["clear_culprit_share"])[0]


def _situation(
    main: str, host: HostComparison | None, within: str, pause: Pause | None, at: Mapping[str, float]
) -> str:
    """The situation, by what the late rank mainly spends more time on.

    `host`: its calls beside the others'; `within`: the code that it is in while it makes none; `pause`: it makes none
    for equally long in every step.
    """
    if main in _UNNAMED and host is not None:
        if host.has_more_work:
            return "more-work"
        if host.is_same_work(at["same_calls_within"]):
            if host.slower >= 1 + at["slower_at_least"]:
                return "slower-host"
            if pause is None:
                return "host" if within else "late-host"
    if pause is not None:
        return "pause"
    if main in _HOST:
        return "late-host" if main == "launch_bound" else "host"
    return {"compute": "compute", "copies": "copies", "input_wait": "input"}.get(main, "")


def _symptoms(main: str, late: JobPlace, others: Sequence[JobPlace], at: Mapping[str, float]) -> tuple[str, ...]:
    """The rules that find hardly more than what the late rank's host does: the others' devices wait less for theirs."""

    def usual(cause: str) -> float:
        return float(np.mean([place.share(place.idle_ns(cause)) for place in others]))

    if main not in _HOST:
        return ()
    is_its_own = usual(main) <= (1 - at["clear_culprit_share"]) * late.share(late.idle_ns(main))
    owners = IDLE_PARTS[main].rules if is_its_own else ()
    return (*owners, "launch-bound") if usual("launch_bound") < at["min_share_of_step"] else owners


# --- evidence ---


def _waited_each_ns(matched: Skew, place: JobPlace) -> Floats:
    """How long the place waited in each of its `collectives` for the last rank."""
    waited = np.zeros(len(place.recorded_collectives))
    if matched.has(place.rank) and len(place.collectives):
        own = matched.came.place == matched.number(place.rank)
        waited[matched.came.row[own]] = matched.waits_ns[own]
    inside: Floats = waited[touches(place.recorded_collectives, place.window)]
    return inside


def _same_calls(rank: int, host: HostComparison) -> Rows:
    return Rows(
        f"What rank {rank}'s host takes longer for than the middle one of the others",
        ("call or op", "a step", f"rank {rank}, each", "the others, each"),
        ("text", "count", "ns", "ns"),
        host.names,
    )


def _instead(late: JobPlace, instead: Mapping[str, int], units: int) -> Rows:
    label = f"What rank {late.rank} spends more time on than the middle one of the others, a step"
    rows = [(name.replace("_", " "), ns // units) for name, ns in sorted(instead.items(), key=lambda row: -row[1])]
    return Rows(label, ("what", "time"), ("text", "ns"), tuple(rows))


def _by_rank(matched: Skew, seen: Waiting, units: int) -> Rows:
    """The ranks, the shortest wait first; of many ranks those that came late by their own doing, the latest first."""
    label, late_ns, order = "Collectives by rank", matched.caused_ns, matched.waiting_ns // units
    if seen.is_replayed:
        late_ns = seen.own_late_ns
    if len(matched.ranks) > _MOST_ROWS:
        label, late_ns, order = "The latest ranks", seen.own_late_ns, -seen.own_late_ns
    columns, whole_ns = (matched.spent_ns, matched.waiting_ns, late_ns), max(int(seen.own_late_ns.sum()), 1)
    first = np.argsort(order, kind="stable")[:_MOST_ROWS].tolist()
    rows = tuple(
        (matched.ranks[at], *(int(each[at] / units) for each in columns), float(seen.own_late_ns[at] / whole_ns))
        for at in first
    )
    names = ("rank", "in collectives", "waiting", "was late by", "part of all lateness")
    return Rows(label, names, ("count", "ns", "ns", "ns", "share"), rows)


def _late_together(seen: Waiting) -> tuple[str, float]:
    """The ranks that are at least half as late as the latest one, and their part of all lateness."""
    own = seen.own_late_ns
    late = np.flatnonzero(own >= max(MOST_OF_IT * own.max(initial=0), 1))
    return spans([seen.places[at].rank for at in late.tolist()]), float(own[late].sum() / max(own.sum(), 1))


def _by_node(matched: Skew, seen: Waiting, units: int) -> Iterator[Rows]:
    """How late the ranks of each machine came, the latest machine first; nothing where ranks are few."""
    first = first_ranks(seen.places) if len(matched.ranks) > _MOST_ROWS else None
    if first is None:
        return
    nodes, of_node = np.unique(first, return_inverse=True)
    late, waited = (np.bincount(of_node, weights=each) for each in (seen.own_late_ns, matched.waiting_ns))
    count = np.bincount(of_node)
    yield Rows(
        "Ranks by node, means of its ranks",
        ("first rank", "ranks", "waiting", "was late by"),
        ("count", "count", "ns", "ns"),
        tuple(
            (int(nodes[at]), int(count[at]), int(waited[at] / count[at] / units), int(late[at] / count[at] / units))
            for at in np.argsort(-late / count, kind="stable")[: _MOST_ROWS // 2].tolist()
        ),
    )

"""What did communication cost, by what it is for: tensor parallelism's sums, experts' exchanges, sharded parameters?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from perfdoctor.metrics import grouping
from perfdoctor.metrics.communication.collectives import bus_factor
from perfdoctor.metrics.communication.costs import CollectiveCosts, collective_costs
from perfdoctor.metrics.communication.parallelism import GroupUse, group_uses, key_of
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints
from perfdoctor.records.collectives import CollectiveUse
from perfdoctor.records.findings import Rows
from perfdoctor.vocabulary.kinds import COLLECTIVE_LABELS, PARALLELISM
from perfdoctor.vocabulary.names import nccl as nccl_names

AnyPlace = TypeVar("AnyPlace", bound=JobPlace)

#: More than so much of the time is most of it.
_MOST = 0.5
_MOST_ROWS = 8


@once_per_run
def collective_uses(run: Run) -> tuple[CollectiveUse, ...]:
    """The collectives that ran in a window, by what they are for, by kind and by size of the group; longest first."""
    costs = collective_costs(run)
    if costs is None:
        return ()
    uses = [_use_of(run, group, kind) for group, kind in zip(costs.groups, costs.kinds, strict=True)]
    found: dict[tuple[str, str, int], list[int]] = {}
    for row, (use, kind, ranks) in enumerate(zip(uses, costs.kinds, costs.ranks.tolist(), strict=True)):
        found.setdefault((use.kind, kind, ranks), []).append(row)
    rows = [_summed(costs, np.array(own), [uses[row] for row in own]) for own in found.values()]
    return tuple(sorted(rows, key=lambda row: -row.ns))


def _use_of(run: Run, group: str, kind: str) -> GroupUse:
    """What the group is for; of one of which no rank was read in full, only its name shows it."""
    named = nccl_names.parallelism(group)
    return group_uses(run).get(key_of(group, kind)) or GroupUse(named, by_name=bool(named))


def _summed(costs: CollectiveCosts, rows: Ints, uses: Sequence[GroupUse]) -> CollectiveUse:
    """These rows of the costs, of one use, kind and size of the group, as one."""
    count, sizes, ranks = costs.count_per_step[rows], costs.sizes[rows], int(costs.ranks[rows[0]])
    names = {costs.groups[row] for row in rows.tolist()}
    carried = np.where(sizes == UNKNOWN, np.nan, sizes) * count
    waiting_ns, ns = _sum_of_known(costs.waiting_ns[rows]), float(costs.ns_per_step[rows].sum())
    bounded = rows[np.argsort(-np.nan_to_num(np.where(np.isnan(costs.bound[rows]), -1, carried)), kind="stable")[0]]
    moved, took_ns = carried * bus_factor(costs.kinds[rows[0]], ranks), count * costs.transfer_ns[rows]
    timed = ~np.isnan(moved) & ~np.isnan(took_ns)
    return CollectiveUse(
        parallelism=uses[0].kind,
        by_name=all(use.by_name for use in uses),
        kind=costs.kinds[rows[0]],
        ranks=None if ranks == UNKNOWN else ranks,
        groups=len(names),
        group=names.pop() if len(names) == 1 else "",
        count=float(count.sum()),
        bytes=None if np.isnan(carried).any() else float(carried.sum()),
        ns=ns,
        exposed_ns=float(costs.exposed_ns[rows].sum()),
        waiting_ns=waiting_ns,
        transfer_ns=None if waiting_ns is None else max(ns - waiting_ns, 0.0),
        bus_bytes_per_second=_or_none(
            grouping.ratio(np.array(moved[timed].sum() * 1e9), np.array(took_ns[timed].sum()))
        ),
        link_bytes_per_second=_or_none(costs.bound[bounded]),
        link_source=costs.bound_sources[bounded],
    )


def _sum_of_known(values: Floats) -> float | None:
    return None if np.isnan(values).all() else float(np.nansum(values))


def _or_none(value: Floats | float) -> float | None:
    return None if np.isnan(value) else float(value)


# --- in findings ---


def mostly(run: Run, places: Sequence[AnyPlace], ns_of: Callable[[AnyPlace], Floats]) -> str:
    """What most of this time goes to: `all-gathers of sharded parameters`; "" where that is of several or unknown uses.

    `ns_of`: the time of each row of `place.collectives` that counts.
    """
    total: dict[tuple[str, str], float] = {}
    for place in places:
        kind, group = place.collectives.text("kind"), place.collectives.text("group_name")
        pair = group.codes.astype(np.int64) * len(kind.values) + kind.codes
        for row, ns in zip(*_sums(pair, ns_of(place)), strict=True):
            use = _use_of(run, group[row], kind[row])
            total[use.kind, kind[row]] = total.get((use.kind, kind[row]), 0.0) + ns
    most = max(total, key=lambda each: total[each], default=("", ""))
    is_most = total.get(most, 0.0) > _MOST * sum(total.values())
    return called(*most) if is_most and most[0] in PARALLELISM else ""


def _sums(group: Ints, values: Floats) -> tuple[list[int], list[float]]:
    """A row of each group, and the sum of its values."""
    found, first, of_group = np.unique(group, return_index=True, return_inverse=True)
    return first.tolist(), np.bincount(of_group, weights=values, minlength=found.size).tolist()


def exposed_each_ns(place: JobPlace) -> Floats:
    """How long each of `place.collectives` is exposed in the window."""
    frame = place.collectives
    return place.exposed_communication.overlap_ns(frame.start_ns, frame.end_ns).astype(np.float64)


def use_of(run: Run, group: str, kind: str) -> str:
    """What the group of this collective is for, as a noun of a sentence: `tensor parallelism`; "" where unknown."""
    return PARALLELISM.get(_use_of(run, group, kind).kind, "")


def use_of_kind(run: Run, kind: str) -> str:
    """The same of all collectives of a kind, where they are for one thing."""
    uses = {row.parallelism for row in collective_uses(run) if row.kind == kind}
    return PARALLELISM.get(uses.pop(), "") if len(uses) == 1 else ""


def called(use: str, kind: str) -> str:
    """`all-gathers of sharded parameters`."""
    label = COLLECTIVE_LABELS.get(kind, kind)
    return f"{label} of {PARALLELISM[use]}" if use in PARALLELISM else label


def table_of_uses(run: Run) -> tuple[Rows, ...]:
    """The same as evidence: one table, or none where nothing communicates."""
    rows = [row for row in collective_uses(run) if row.ns > 0][:_MOST_ROWS]
    if not rows:
        return ()
    columns: dict[str, tuple[str, list[float | str]]] = {
        "what": ("text", [called(row.parallelism, row.kind) for row in rows]),
        "ranks": ("count", [row.ranks or np.nan for row in rows]),
        "count": ("count", [row.count for row in rows]),
        "bytes": ("bytes", [_or_nan(row.bytes) for row in rows]),
        "time": ("ns", [row.ns for row in rows]),
        "exposed": ("ns", [row.exposed_ns for row in rows]),
        "waiting": ("ns", [_or_nan(row.waiting_ns) for row in rows]),
        "bus bandwidth": ("bytes_per_second", [_or_nan(row.bus_bytes_per_second) for row in rows]),
        "link": ("bytes_per_second", [_or_nan(row.link_bytes_per_second) for row in rows]),
    }
    known = {name: column for name, column in columns.items() if set(map(str, column[1])) != {"nan"}}
    label = "Communication by what it is for, a step, mean of the ranks"
    cells = tuple(zip(*(values for _, values in known.values()), strict=True))
    return (Rows(label, tuple(known), tuple(unit for unit, _ in known.values()), cells),)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value

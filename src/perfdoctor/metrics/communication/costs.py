"""What did collectives cost, by kind, group, size and type: how exposed, how long waited for a rank, how fast?

Bandwidth is as in `collectives`: bytes over the time from the arrival of the last rank to the end, known where every
rank of the group was recorded. Elsewhere the quickest run shows what the links gave at least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.links import link_of, nvlink_bytes_per_second
from perfdoctor.metrics import grouping
from perfdoctor.metrics.communication.collectives import bus_factor, in_one_node, longest_transfer_ns
from perfdoctor.metrics.communication.link_baseline import baseline
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.communication.topology import nvlinks, of_job, pairs
from perfdoctor.metrics.grouping import GroupSpread
from perfdoctor.metrics.placed_groups import PlacedGroups, below_each_other
from perfdoctor.model.cache import once_per_run
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask
from perfdoctor.vocabulary.kinds import ON_RINGS


class CollectiveCosts(Struct, frozen=True):
    """One element a group of like collectives, those that take longest first; `per_step`: of an average place.

    `ranks`, `sizes` (bytes of the message): UNKNOWN if not recorded. `took`: ns in it, waiting included. `exposed_ns`,
    `hidden_ns`: without and with compute beside it, a step. `waiting_ns`: in it before the last rank came (where
    ranks cannot be matched, what no transfer of so few bytes takes). `transfer_ns`: the median from there to the end,
    where ranks can be matched. Bandwidths in bytes/s: of the median transfer, and of the quickest run (`fastest_bus`).
    `bound`: what links like these gave when measured, what the machine's topology or the board's table says;
    `bound_sources`: which of them. NaN, "" where not known.
    """

    kinds: tuple[str, ...]
    data_types: tuple[str, ...]
    groups: tuple[str, ...]
    ranks: Ints
    sizes: Ints
    took: GroupSpread
    count_per_step: Floats
    ns_per_step: Floats
    exposed_ns: Floats
    hidden_ns: Floats
    waiting_ns: Floats
    transfer_ns: Floats
    algorithm_bandwidth: Floats
    bus_bandwidth: Floats
    fastest_bus: Floats
    bound: Floats
    bound_sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.kinds)


class _CollectiveRows(Struct, frozen=True):
    """The collectives that touch their place's window, all places below each other.

    `shortest_ns`, `is_whole`: how long the last rank to come was in it (UNKNOWN where not matched), and whether its
    whole group was recorded.
    """

    places: tuple[Place, ...]
    place: Ints
    frame: Frame
    shortest_ns: Ints
    is_whole: Mask

    @property
    def is_matched(self) -> Mask:
        matched: Mask = self.shortest_ns != UNKNOWN
        return matched


@once_per_run
def collective_costs(run: Run) -> CollectiveCosts | None:
    """The costs of all collectives that ran in a window, by group; None where none did."""
    rows = _rows(run)
    if rows is None:
        return None
    inside = _overlap(rows, lambda place: place.window)
    exposed = _overlap(rows, lambda place: place.exposed_communication)
    texts = [rows.frame.text(name) for name in ("kind", "data_type", "group_name")]
    ranks, sizes = rows.frame["group_size"], rows.frame["bytes"]
    group, first = grouping.combined(*(text.codes.astype(np.int64) for text in texts), ranks, sizes)
    groups = PlacedGroups(rows.places, rows.place, group, inside, first.size)
    of = first[groups.order]
    took = groups.spread(rows.frame.duration_ns)
    transfer = groups.spread(rows.shortest_ns, rows.is_matched & rows.is_whole & (rows.shortest_ns > 0)).median
    least = np.where(rows.is_matched, rows.shortest_ns, _longest_transfer_ns(rows))
    waited = groups.per_step(np.maximum(rows.frame.duration_ns - least, 0))
    known = np.where(sizes == UNKNOWN, np.nan, sizes)[of]
    kinds, data_types, names = (tuple(text.take(of)) for text in texts)
    sized = zip(kinds, ranks[of].tolist(), strict=True)
    factor = np.array([bus_factor(kind, count) if count != UNKNOWN else np.nan for kind, count in sized])
    algorithm = grouping.ratio(known * 1e9, transfer)
    present = groups.by_place(groups.runs()).T > 0
    bounds = [
        _bound(run, rows.frame, row, [rows.places[number] for number in np.flatnonzero(own)])
        for row, own in zip(of.tolist(), present, strict=True)
    ]
    return CollectiveCosts(
        kinds=kinds,
        data_types=data_types,
        groups=names,
        ranks=ranks[of],
        sizes=sizes[of],
        took=took,
        count_per_step=groups.per_step(groups.runs()),
        ns_per_step=groups.per_step(inside),
        exposed_ns=groups.per_step(exposed),
        hidden_ns=groups.per_step(inside - exposed),
        waiting_ns=np.where((groups.sums(rows.is_matched) > 0) | (waited > 0), waited, np.nan),
        transfer_ns=transfer,
        algorithm_bandwidth=algorithm,
        bus_bandwidth=algorithm * factor,
        fastest_bus=grouping.ratio(known * 1e9, took.least) * factor,
        bound=np.array([speed for speed, _ in bounds]),
        bound_sources=tuple(source for _, source in bounds),
    )


def _rows(run: Run) -> _CollectiveRows | None:
    places = run.places
    touching = [
        place.window.overlap_ns(f.start_ns, f.end_ns) > 0 for place in places for f in [place.recorded_collectives]
    ]
    if not sum(int(mask.sum()) for mask in touching):
        return None
    shortest, whole = _matched(run)
    frames = [place.recorded_collectives.take(mask) for place, mask in zip(places, touching, strict=True)]
    return _CollectiveRows(
        places=places,
        place=np.concatenate([np.full(len(frame), at) for at, frame in enumerate(frames)]),
        frame=below_each_other(
            frames, ("kind", "data_type", "group_name", "group_size", "bytes", "start_ns", "end_ns")
        ),
        shortest_ns=np.concatenate([each[mask] for each, mask in zip(shortest, touching, strict=True)]),
        is_whole=np.concatenate([each[mask] for each, mask in zip(whole, touching, strict=True)]),
    )


def _matched(run: Run) -> tuple[list[Ints], list[Mask]]:
    """By place and row of `recorded_collectives`: how long the last rank was in it; was its whole group recorded?"""
    shortest = [np.full(len(place.recorded_collectives), UNKNOWN, np.int64) for place in run.places]
    whole = [np.zeros(len(place.recorded_collectives), dtype=bool) for place in run.places]
    found = skew(run)
    if found is None:
        return shortest, whole
    with_any = [at for at, place in enumerate(run.places) if len(place.collectives)]
    present = found.taking_part.sum(axis=0)
    for rows, at in zip(found.rows, with_any, strict=True):
        taking = rows != UNKNOWN
        shortest[at][rows[taking]] = found.shortest_ns[taking]
        size = run.places[at].recorded_collectives["group_size"]
        whole[at][rows[taking]] = present[taking] == size[rows[taking]]
    return shortest, whole


def _longest_transfer_ns(rows: _CollectiveRows) -> Floats:
    on_gpu = np.array([place.device is not None for place in rows.places])[rows.place]
    return np.where(on_gpu, longest_transfer_ns(rows.frame), np.inf)


def _overlap(rows: _CollectiveRows, pieces_of: Callable[[Place], Intervals]) -> Ints:
    """How long each row lay in these pieces of its place, in ns."""
    found = np.zeros(rows.place.size, dtype=np.int64)
    for number, place in enumerate(rows.places):
        own = rows.place == number
        found[own] = pieces_of(place).overlap_ns(rows.frame.start_ns[own], rows.frame.end_ns[own])
    return found


def _bound(run: Run, frame: Frame, row: int, own: Sequence[Place]) -> tuple[float, str]:
    """The bus bandwidth in bytes/s that bounds this row, and its source; (NaN, "") where it is not known.

    `own`: the places of its group that were recorded.
    """
    kind, ranks, size = frame.text("kind")[row], int(frame["group_size"][row]), int(frame["bytes"][row])
    if ranks < 2 or size == UNKNOWN:
        return np.nan, ""
    # Ranks of the group that were not recorded may be in another machine.
    one_machine = len(own) >= ranks and in_one_node(own)
    members = [place.rank for place in own] if len(own) == ranks else ()
    measured = baseline(run.timeline, kind, ranks, size, one_machine=one_machine, members=members)
    if measured is not None:
        return measured.bus_bytes_per_second, measured.source
    if kind not in ON_RINGS or not one_machine:
        return np.nan, ""
    # What joins the GPUs of one machine: by its topology where that is known, else by the board's table.
    gpu, links, (chosen, _) = own[0].info.name, pairs(run.timeline), of_job(run)
    if links and chosen:
        speed = nvlinks(links, chosen, ranks) * nvlink_bytes_per_second(gpu)
        return (speed, "topology") if speed else (np.nan, "")
    link = link_of(gpu)
    return (link.peak_bytes_per_second, link.name) if link else (np.nan, "")

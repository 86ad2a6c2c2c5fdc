"""What does each collective carry, how much of it is exposed, and how fast do the links move it?

Bandwidth follows nccl-tests: `algbw = bytes / time`, and `busbw = algbw * factor`, the load of one link, which can be
held against what the link gives whatever the number of ranks (nccl-tests, doc/PERFORMANCE.md). Time is transfer only:
from the arrival of the last rank to the end, known where every rank of the group was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import WITHOUT_CORE_NS
from perfdoctor.metrics.communication.matching import Matrix, column
from perfdoctor.metrics.communication.messages import MESSAGE
from perfdoctor.metrics.communication.nodes import where
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.model.cache import kept_in_summaries, once_per_job
from perfdoctor.model.columns import occurring
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Job
from perfdoctor.model.timeline import UNKNOWN, Floats, Frame, Ints, Mask
from perfdoctor.records.findings import Rows
from perfdoctor.vocabulary.names import nccl as nccl_names

#: From the end of what was waited for to the start of a kernel that is queued already: tens of microseconds at most.
_START_NS = 50_000
#: A step of a ring over TCP sockets, the slowest network that NCCL takes, and what one of eight GPUs has there of
#: 10 Gbit/s: no transfer takes longer.
_SLOWEST_STEP_NS, _SLOWEST_BYTES_PER_NS = 100_000, 10 / 8 / 8


def waited_for(place: JobPlace) -> Intervals:
    """Exposed communication that compute waited for: compute starts when a collective ends.

    Where compute starts before any running collective ends, it had waited for something else: the host, mostly.
    """
    exposed, frame = place.exposed_communication, place.collectives
    all_over = place.communication.overlap_ns(exposed.ends, exposed.ends + 1) == 0
    ends = np.sort(frame.end_ns)
    over = np.searchsorted(ends, exposed.ends, side="right") - np.searchsorted(ends, exposed.ends - _START_NS) > 0
    waited = all_over | over | _woken_late(place, exposed, ends)
    return Intervals(exposed.starts[waited], exposed.ends[waited])


def _woken_late(place: JobPlace, exposed: Intervals, ends: Ints) -> Mask:
    """One bool a piece: did a thread of the host wait there, and go on late because it got no core?

    It had stood still for longer before the last end of a collective than behind it.
    """
    if place.device is not None or not ends.size:
        return np.zeros(len(exposed), dtype=bool)
    last = ends[np.maximum(np.searchsorted(ends, exposed.ends, side="right") - 1, 0)]
    late: Mask = exposed.ends - last <= np.minimum(last - exposed.starts, WITHOUT_CORE_NS)
    return late


def exposed_rows_ns(place: JobPlace, rows: Mask) -> int:
    """How long compute waited while these rows of `place.collectives` ran, in ns."""
    frame = place.collectives
    return (Intervals.of(frame.start_ns[rows], frame.end_ns[rows]) & waited_for(place)).total_ns


@kept_in_summaries
def proven_messages(place: Place) -> Mask:
    """One bool a row of `place.collectives`: is it surely a send or receive, and not an all-to-all with such a name?"""
    frame = place.collectives
    called = launches_of(place, "collectives").while_open(nccl_names.POINT_TO_POINT, "ranges")
    called |= launches_of(place, "collectives").while_open(nccl_names.COALESCED, "ranges")
    called |= frame.name.matches(nccl_names.HOST_MESSAGE) | ~frame.text("peers").equals("")
    rows: Mask = frame.text("kind").equals("send_recv") & ((frame["group_size"] != UNKNOWN) | called)
    return rows


def transfer_share(run: Job[JobPlace], kind: str = "") -> float:
    """The share of the time in collectives that is transfer (0-1), by the ranks recorded.

    Where they cannot be matched, only what no transfer of so few bytes takes is known to be waiting. With a `kind` only
    its collectives count, those with uneven loads among them.
    """
    matched = skew(run.job, with_uneven=bool(kind))
    if matched is None:
        return 1.0 - waiting_share_by_size(run.job, kind)
    if not kind:
        return 1.0 - matched.waiting_share
    chosen = np.array(matched.kinds) == kind
    return 1.0 - matched.of(chosen).waiting_share if chosen.any() else 1.0


def longest_transfer_ns(frame: Frame) -> Floats:
    """How long the transfer of each collective takes at most, over the slowest links; infinite where that is unknown.

    A ring of n ranks takes n - 1 steps, for an all-reduce twice as many (NCCL, src/graph/tuning.cc).
    """
    size, ranks = frame["bytes"], frame["group_size"]
    passes = np.where(frame.text("kind").equals("all_reduce"), PASSES_OF_ALL_REDUCE, 1)
    longest: Floats = passes * ((ranks - 1) * _SLOWEST_STEP_NS + np.maximum(size, 0) / _SLOWEST_BYTES_PER_NS)
    return np.where((size == UNKNOWN) | (ranks < 2), np.inf, longest)


def waiting_share_by_size(run: Job[JobPlace], kind: str = "") -> float:
    """The share of the time in collectives that is waiting by the bytes that they carry (0-1): 64 bytes in 1 ms."""
    waited_ns = total_ns = 0.0
    for place in run.places:
        if place.device is not None:  # on the host threads may wait for a core as long
            frame = place.collectives
            frame = frame.take(frame.text("kind").equals(kind)) if kind else frame
            waited_ns += float(np.maximum(frame.duration_ns - longest_transfer_ns(frame), 0).sum())
            total_ns += float(frame.duration_ns.sum())
    return waited_ns / total_ns if total_ns else 0.0


def won_by_all_ns(run: Job[JobPlace]) -> float:
    """Exposed transfer on the rank that came last, per step, in ns; infinite where collectives cannot be matched.

    The transfer starts when the last rank has come: what that rank hides behind its compute costs nothing, however long
    the others have been waiting.
    """
    matched = skew(run.job)
    if matched is None:
        return np.inf
    won, unmatched = 0.0, 0.0
    for number, place in enumerate(_places(run.job, matched)):
        frame, waited, last = place.recorded_collectives, waited_for(place), matched.last_rows_of(number)
        # At a window's edge collectives of a matched kind and group may be left unmatched.
        kind, group = frame.text("kind"), frame.text("group_name")
        of_kind = kind.codes.astype(np.int64) * len(group.values) + group.codes
        others = ~np.isin(of_kind, of_kind[matched.rows_of(number)])
        won += (Intervals.of(frame.start_ns[last], frame.end_ns[last]) & waited).total_ns / place.units
        unmatched += (Intervals.of(frame.start_ns[others], frame.end_ns[others]) & waited).total_ns / place.units
    # For broadcasts, sends and uneven loads the last rank is unknown: what the ranks wait for them on the mean.
    return won + unmatched / len(matched.ranks)


def _places(run: Job[JobPlace], matched: Skew) -> list[JobPlace]:
    """The places of `matched.ranks`: of a process with several devices the one on which its collectives run."""
    of_rank = {place.rank: place for place in run.places if len(place.collectives)}
    return [of_rank[rank] for rank in matched.ranks]


def is_full_precision(frame: Frame) -> Mask:
    """One bool a row: are its elements fp32? By the recorded type, else by the kernel's name."""
    types = frame.text("data_type")
    by_name: Mask = types.equals("") & frame.name.matches(nccl_names.FULL_PRECISION_KERNEL)
    return types.matches(nccl_names.FULL_PRECISION) | by_name


def sizes_can_be_judged(run: Job[JobPlace], place: JobPlace, rows: Mask) -> bool:
    """Are the sizes of these rows known, or are there other ranks to distinguish a long transfer from a wait?"""
    return len(run.job.places) > 1 or bool((place.collectives["bytes"][rows] != UNKNOWN).all())


# --- bandwidth ---


#: An all-reduce moves each byte twice: it scatters the sums, then gathers them.
PASSES_OF_ALL_REDUCE = 2


def bus_factor(kind: str, ranks: int) -> float:
    """The bytes that one link carries for each byte of the message (nccl-tests, doc/PERFORMANCE.md)."""
    if ranks < 2:
        return 0.0
    if kind == "all_reduce":
        return PASSES_OF_ALL_REDUCE * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def bus_bandwidth(frame: Frame) -> Floats:
    """Bus bandwidth of each collective in bytes/s over its whole duration, waiting for late ranks included; NaN where
    its size, or how many ranks took part, is not known.
    """
    kind, ranks, size, took_ns = frame.text("kind"), frame["group_size"], frame["bytes"], frame.duration_ns
    found = np.full(len(frame), np.nan)
    for name in kind.trimmed().values:
        is_kind = kind.equals(name)
        for members in occurring(ranks[is_kind]):
            own = is_kind & (ranks == members) & (size > 0) & (took_ns > 0)
            if factor := bus_factor(name, members):
                found[own] = size[own] * factor / took_ns[own] * 1e9
    return found


class Bandwidth(Struct, frozen=True):
    """Large messages of one kind among the same ranks: median sizes and speeds, bytes and bytes per second.

    `exposed_ns` is how long they are exposed on an average rank, per step, `transfer_ns` how long they take once all
    ranks have come. `one_node`: are the devices of the ranks known to be in one machine? `shared`: what they share.
    `group`: its name on the first of them, "" for none.
    """

    kind: str
    ranks: int
    message_bytes: int
    bus_bytes_per_second: float
    exposed_ns: int
    one_node: bool
    gpu: str
    members: tuple[int, ...]
    shared: str
    transfer_ns: int
    group: str


@once_per_job
def bandwidths(run: Job[JobPlace], min_bytes: float) -> list[Bandwidth]:
    """Bandwidths of messages of at least `min_bytes` whose whole group was recorded, the most exposed first.

    Of sends and receives both ends were recorded.
    """
    matched = skew(run.job, with_messages=True)
    if matched is None:
        return []
    places = _places(run.job, matched)
    # Ranks of an uneven all-to-all carry different loads: the largest is what the others wait for.
    size = matched.largest(column(places, matched.came, "bytes"))
    group = matched.largest(column(places, matched.came, "group_size"))
    whole = (matched.members == group) | (np.array(matched.kinds) == MESSAGE)
    usable = np.flatnonzero((size >= min_bytes) & whole & (matched.shortest_ns > 0))
    found = []
    for kind, members, chosen in _alike(matched, usable):
        own = [places[member] for member in members]
        found.append(_bandwidth(kind, own, matched.rows_at(chosen), size[chosen], matched.shortest_ns[chosen]))
    return sorted(found, key=lambda each: -each.exposed_ns)


def _alike(matched: Skew, collectives: Ints) -> list[tuple[str, tuple[int, ...], Ints]]:
    """Kind, members and numbers of these collectives, grouped by kind and members."""
    found: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for number in collectives.tolist():
        found.setdefault((tuple(matched.members_of(number).tolist()), matched.kinds[number]), []).append(number)
    kinds = list(dict.fromkeys(matched.kinds))
    order = sorted(found, key=lambda key: (tuple(-member for member in key[0]), kinds.index(key[1])))
    return [(kind, members, np.array(found[members, kind], np.int64)) for members, kind in order]


class Loads(Struct, frozen=True):
    """`sizes[i, k]`: bytes that the i-th of `ranks` has in the k-th collective, the larger of sent and received.

    `even[k]`: what each would have if all had the same. All bytes are sent once and received once, so that is the mean
    of those sent; where they are not known apart, the mean of `sizes`, which is more.
    """

    ranks: tuple[int, ...]
    sizes: Matrix
    even: Floats


def matched_bytes(run: Job[JobPlace], kind: str) -> Loads | None:
    """Bytes by rank of collectives of one kind in which all recorded ranks take part; None where they are unknown."""
    matched = skew(run.job, with_uneven=True)
    if matched is None:
        return None
    places = _places(run.job, matched)
    by_all = (np.array(matched.kinds) == kind) & (matched.members == len(places))
    if not by_all.any():
        return None
    came = matched.came.of(by_all)
    sizes, sent = (column(places, came, name).reshape(-1, len(places)).T for name in ("bytes", "sent_bytes"))
    usable = (sizes != UNKNOWN).all(axis=0)
    even = np.where((sent != UNKNOWN).all(axis=0), sent.mean(axis=0), sizes.mean(axis=0))
    return Loads(matched.ranks, sizes[:, usable], even[usable]) if usable.any() else None


def _bandwidth(kind: str, places: Sequence[JobPlace], rows: Matrix, sizes: Ints, transfer_ns: Ints) -> Bandwidth:
    """The bandwidth of like collectives; `rows`: a line a place, a column a collective."""
    algorithm = float(np.median(sizes / (transfer_ns / 1e9)))
    exposed = []
    for place, own in zip(places, rows, strict=True):
        running = place.recorded_collectives.take(own).intervals
        exposed.append((running & place.exposed_communication).total_ns / place.units)
    return Bandwidth(
        kind=kind,
        ranks=len(places),
        message_bytes=int(np.median(sizes)),
        bus_bytes_per_second=algorithm * bus_factor(kind, len(places)),
        exposed_ns=round(float(np.mean(exposed))),
        one_node=in_one_node(places),
        gpu=places[0].info.name,
        members=tuple(place.rank for place in places),
        shared=where(places),
        transfer_ns=round(float(transfer_ns.sum()) / places[0].units),
        group=places[0].recorded_collectives.text("group_name")[int(rows[0, 0])],
    )


def in_one_node(places: Sequence[JobPlace]) -> bool:
    """Are the devices of these ranks known to be in one machine? Each its own, numbered as the ranks are."""
    if any(place.device is None for place in places):
        return False
    devices = {place.device for place in places}
    first = {place.rank - (place.device or 0) for place in places}
    return len(devices) == len(places) and len(first) == 1


def bandwidth_table(measured: Sequence[Bandwidth]) -> Rows:
    """The first six bandwidths as a table."""
    return Rows(
        "Large messages once all ranks had come",
        ("kind", "ranks", "message", "bus bandwidth"),
        ("text", "count", "bytes", "bytes_per_second"),
        tuple((each.kind, each.ranks, each.message_bytes, each.bus_bytes_per_second) for each in measured[:6]),
    )

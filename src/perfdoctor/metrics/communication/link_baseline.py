"""What do the links give when nothing else runs, as measured or planned by NCCL, and which groups get far less?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.collectives import PASSES_OF_ALL_REDUCE, Bandwidth, bandwidths, bus_factor
from perfdoctor.metrics.communication.messages import MESSAGE
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Job
from perfdoctor.model.timeline import Frame, Mask, Timeline
from perfdoctor.vocabulary.kinds import ON_RINGS

NCCL_TESTS = "nccl-tests"
#: Within this factor two messages are of one size: bandwidth changes little from one row of nccl-tests to the next.
_SAME_SIZE = 2.0
_RECORDER = "flight recorder"
#: The best first: what the user measured, what perfdoctor did, and durations that hold waiting.
_SOURCES = (NCCL_TESTS, "perfdoctor selftest", _RECORDER)


class Baseline(Struct, frozen=True):
    """Bus bandwidth in bytes/s of messages like the one asked for. `source`: one of _SOURCES."""

    bus_bytes_per_second: float
    source: str


def baseline(
    timeline: Timeline,
    kind: str,
    ranks: int,
    message_bytes: int,
    *,
    one_machine: bool = True,
    members: Sequence[int] = (),
) -> Baseline | None:
    """What was measured of this kind among as many ranks; None if nothing was of this size.

    `one_machine`: are these ranks in one? Its links are not those between machines. A flight recorder does not say
    where ranks are: its groups have to have the same `members`, and where these are not known (()) it has to have one
    group of so many ranks.

    A message larger than all that were measured is held against the largest: bandwidth only grows with size. nccl-tests
    and perfdoctor measure transfer alone, so their median counts; a flight recorder's durations hold waiting, so its
    fastest does.
    """
    tests = timeline["link_tests"]
    is_same = tests.name.equals(kind) & (tests["ranks"] == ranks)
    same = tests.take(is_same)
    alike = (same["machines"] == 1) if one_machine else (same["machines"] > 1)
    recorded = _of_group(tests, ranks, members)[is_same]
    for source in _SOURCES:
        rows = same.take(same.text("source").equals(source) & (recorded if source == _RECORDER else alike))
        if not len(rows):
            continue
        size = min(message_bytes, int(rows["bytes"].max()))
        near = (rows["bytes"] >= size / _SAME_SIZE) & (rows["bytes"] <= size * _SAME_SIZE)
        speeds = rows.floats("bus_bytes_per_second")[near]
        if speeds.size:
            speed = float(speeds.max() if source == _RECORDER else np.median(speeds))
            return Baseline(speed, source)
    return None


def _of_group(tests: Frame, ranks: int, members: Sequence[int]) -> Mask:
    """One bool a row: is it of the group with these members, or of the only one of so many ranks that was recorded?"""
    groups = tests.text("members")
    if members:
        return groups.equals(" ".join(map(str, sorted(members))))
    recorded: Mask = tests.text("source").equals(_RECORDER) & (tests["ranks"] == ranks)
    return recorded if len(set(groups.take(recorded))) == 1 else np.zeros(len(tests), dtype=bool)


def planned_rings(timeline: Timeline, ranks: int) -> float:
    """Bus bandwidth in bytes/s of the rings that NCCL plans among as many ranks, by its log; 0 where it does not say.

    Channels times the bandwidth of each (`Pattern 4` with NCCL_DEBUG_SUBSYS=GRAPH); of several communicators the least.
    """
    facts = timeline["nccl_facts"]
    rings = facts.name.equals("graph") & facts.text("value").where(
        lambda value: value.startswith("4 ") and value.endswith(f" of {ranks}")
    )
    speeds = facts.floats("amount")[rings]
    return float(speeds.min()) * 1e9 if speeds.size else 0.0


def reached_by_ring(kind: str, ranks: int, message_bytes: float, bus_bytes_per_second: float, step_ns: float) -> float:
    """Bus bandwidth in bytes/s of one message, where each of a ring's steps takes `step_ns` beside what it moves.

    NCCL's own model (src/graph/tuning.cc): time = latency + bytes / bandwidth, an all-reduce of 2 (n - 1) steps, the
    other kinds of n - 1.
    """
    steps = (ranks - 1) * (PASSES_OF_ALL_REDUCE if kind == "all_reduce" else 1)
    moved = bus_factor(kind, ranks) * message_bytes
    return moved / (moved / bus_bytes_per_second + steps * step_ns / 1e9)


def best_in_a_machine(timeline: Timeline, ranks: int) -> float:
    """The most that nccl-tests measured of what goes round rings, among as many ranks of one machine, in bytes/s.

    0 where it was not measured.
    """
    tests = timeline["link_tests"]
    alike = tests.text("source").equals(NCCL_TESTS) & tests.name.equals(*ON_RINGS)
    speeds = tests.floats("bus_bytes_per_second")[alike & (tests["ranks"] == ranks) & (tests["machines"] == 1)]
    return float(speeds.max()) if speeds.size else 0.0


class SlowGroup(Struct, frozen=True):
    """One group's messages, the median bus bandwidth of all such groups in bytes/s, and the number of the others."""

    own: Bandwidth
    usual_bytes_per_second: float
    others: int

    @property
    def longer_ns(self) -> float:
        """How much longer a step its transfers take than they would at the usual speed."""
        return self.own.transfer_ns * (1 - self.own.bus_bytes_per_second / self.usual_bytes_per_second)


def slow_groups(
    run: Job[JobPlace], min_bytes: float, min_bytes_of_pairs: float, fewest_others: float, least_share: float
) -> list[SlowGroup]:
    """The groups far slower than others at the same messages, of `min_bytes` and more; the one that loses most first.

    `min_bytes_of_pairs`: of sends and receives, whose two ranks are a group.
    Such a group reaches less than `least_share` of the median of all, with at least `fewest_others` beside it.
    """
    alike: dict[tuple[str, int, int, bool], list[Bandwidth]] = {}
    for each in bandwidths(run, min(min_bytes, min_bytes_of_pairs)):
        if each.kind == MESSAGE or (each.kind in ON_RINGS and each.message_bytes >= min_bytes):
            alike.setdefault((each.kind, each.ranks, each.message_bytes, each.one_node), []).append(each)
    found: list[SlowGroup] = []
    for groups in alike.values():
        others = len(groups) - 1
        if others < fewest_others:
            continue
        usual = float(np.median([each.bus_bytes_per_second for each in groups]))
        found += [SlowGroup(each, usual, others) for each in groups if each.bus_bytes_per_second < least_share * usual]
    return sorted(found, key=lambda group: -group.longer_ns)

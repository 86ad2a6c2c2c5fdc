"""What do the links give when nothing else runs: measured, planned by NCCL, or by what joins the GPUs?"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.communication.collectives import PASSES_OF_ALL_REDUCE, bus_factor
from perfdoctor.model.timeline import Timeline

#: Within this factor two messages are of one size: bandwidth changes little from one row of nccl-tests to the next.
_SAME_SIZE = 2.0
_SELFTEST = "perfdoctor selftest"
#: The best first: what the user measured, what perfdoctor did, and durations that hold waiting.
_SOURCES = ("nccl-tests", _SELFTEST, "flight recorder")


def ring_all_reduce_ns(message_bytes: float, ranks: int, bytes_per_second: float) -> float:
    """How long a ring takes for an all-reduce, in ns: every link carries 2 (n - 1) / n of the message.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009; the same
    factor as in nccl-tests, doc/PERFORMANCE.md. Latency is left out: it is small for large messages.
    """
    if ranks < 2:
        return 0.0
    return 2 * (ranks - 1) / ranks * message_bytes / bytes_per_second * 1e9


class Baseline(Struct, frozen=True):
    """Bus bandwidth in bytes/s of messages like the one asked for. `source`: one of _SOURCES."""

    bus_bytes_per_second: float
    source: str
    count: int


def baseline(
    timeline: Timeline, kind: str, ranks: int, message_bytes: int, *, one_machine: bool = True
) -> Baseline | None:
    """What was measured of this kind among as many ranks; None if nothing was of this size.

    `one_machine`: are these ranks in one? perfdoctor measures the links inside a machine only.

    A message larger than all that were measured is held against the largest: bandwidth only grows with size. nccl-tests
    and perfdoctor measure transfer alone, so their median counts; a flight recorder's durations hold waiting, so its
    fastest does.
    """
    tests = timeline["link_tests"]
    same = tests.take(tests.name.equals(kind) & (tests["ranks"] == ranks))
    for source in _SOURCES:
        if source == _SELFTEST and not one_machine:
            continue
        rows = same.take(same.text("source").equals(source))
        if not len(rows):
            continue
        size = min(message_bytes, int(rows["bytes"].max()))
        near = (rows["bytes"] >= size / _SAME_SIZE) & (rows["bytes"] <= size * _SAME_SIZE)
        speeds = rows.floats("bus_bytes_per_second")[near]
        if speeds.size:
            speed = float(speeds.max() if source == "flight recorder" else np.median(speeds))
            return Baseline(speed, source, int(speeds.size))
    return None


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


def best_bus_bandwidth(timeline: Timeline, source: str) -> float:
    """The most that was measured by this source, in bytes/s; 0 without any."""
    tests = timeline["link_tests"]
    speeds = tests.floats("bus_bytes_per_second")[tests.text("source").equals(source)]
    return float(speeds.max()) if speeds.size else 0.0

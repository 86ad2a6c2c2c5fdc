"""What ran on a device, and which call on the host launched it? Joined by rank, process and correlation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.columns import UNKNOWN, Ints, Mask, occurring, places
from perfdoctor.model.timeline import Frame, Timeline

#: The signals of a device's work, in the order in which DeviceWork joins them.
SIGNALS = ("kernels", "collectives", "copies")

#: Correlations are 32 bit in every tool; the mask keeps a damaged one from overflowing the key.
_CORRELATION_BITS = 40
_CORRELATION_MASK = (1 << _CORRELATION_BITS) - 1


def launch_rows(work: Frame, calls: Frame) -> Ints:
    """Row of `calls` that launched each row of device `work`, UNKNOWN if none was recorded.

    Where several calls carry the same correlation (a runtime call and the driver call inside it) the first one counts.
    Processes of several machines may have one number: ranks distinguish them.
    """
    found = np.full(len(work), UNKNOWN, dtype=np.int64)
    for rank in occurring(work["rank"]):
        own = np.flatnonzero((work["rank"] == rank) & (work["correlation"] != UNKNOWN))
        known = np.flatnonzero((calls["rank"] == rank) & (calls["correlation"] != UNKNOWN))
        if not own.size or not known.size:
            continue
        at = places(_keys(calls, known), _keys(work, own))
        found[own] = np.where(at != UNKNOWN, known[at], UNKNOWN)
    return found


def _keys(frame: Frame, rows: Ints) -> Ints:
    return (frame["process"][rows] << _CORRELATION_BITS) | (frame["correlation"][rows] & _CORRELATION_MASK)


@once_per_timeline
def launching_calls(timeline: Timeline, signal: str) -> Ints:
    """Row of `timeline.calls` that launched each row of the whole signal, UNKNOWN if none was recorded."""
    return launch_rows(timeline[signal], timeline.calls)


class DeviceWork(Struct, frozen=True):
    """All work of one (rank, device), kernels, collectives and copies together, sorted by start.

    `launch` is the row of `timeline.calls` that launched it, UNKNOWN where none was recorded. `is_h2d`: copies
    from the host, `is_blocking_copy` copies to its pageable memory (`.item()`, `.cpu()`): their call waits for them.
    `rows`: by signal, which rows of DeviceWork the device's own rows of that signal are, in their order.
    """

    start_ns: Ints
    end_ns: Ints
    stream: Ints
    launch: Ints
    is_h2d: Mask
    is_blocking_copy: Mask
    rows: Mapping[str, Ints]

    def __len__(self) -> int:
        return int(self.start_ns.size)


def device_work(timeline: Timeline, rank: int, device: int) -> DeviceWork:
    """The work of one device of one rank, with the calls that launched it."""
    own = {
        signal: np.flatnonzero((timeline[signal]["rank"] == rank) & (timeline[signal]["device"] == device))
        for signal in SIGNALS
    }

    def column(name: str) -> Ints:
        return np.concatenate([timeline[signal][name][rows] for signal, rows in own.items()])

    start, copies = column("start_ns"), timeline.copies
    order = np.argsort(start, kind="stable")
    row = np.empty(order.size, np.int64)
    row[order] = np.arange(order.size)
    edges = np.cumsum([0, *(rows.size for rows in own.values())])
    no_copy = np.zeros(edges[2], dtype=bool)
    to_pageable = copies.text("direction").equals("d2h") & copies.text("host_memory").equals("pageable")
    return DeviceWork(
        start_ns=start[order],
        end_ns=column("end_ns")[order],
        stream=column("stream")[order],
        launch=np.concatenate([launching_calls(timeline, signal)[rows] for signal, rows in own.items()])[order],
        is_h2d=np.concatenate((no_copy, copies.text("direction").equals("h2d")[own["copies"]]))[order],
        is_blocking_copy=np.concatenate((no_copy, to_pageable[own["copies"]]))[order],
        rows={signal: row[edges[number] : edges[number + 1]] for number, signal in enumerate(SIGNALS)},
    )

"""To which rank does a memory snapshot belong, and how is it joined with the run's other recordings?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from perfdoctor.model.timeline import SIGNALS, Frame, Ints, Timeline

#: The year 2001: smaller values are positions in a list of events without times.
_SINCE_1970_NS = 10**18


def joined(timeline: Timeline, snapshots: Sequence[Timeline]) -> Timeline:
    """The timeline with the snapshots, on its clock: torch writes times since 1970.

    A snapshot has the rank in its file's name. Without one it gets the next recorded rank that has no snapshot, or the
    next free number.
    """
    placed: list[Timeline] = []
    given_by_kind: dict[frozenset[str], set[int]] = {}
    for snapshot in snapshots:
        kind = snapshot.recorded & {"allocations", "memory_changes"}  # two files of different kinds are of one rank
        taken = {rank for each in snapshots if kind <= each.recorded for rank in each.sources[0].ranks}
        given = given_by_kind.setdefault(kind, set())
        named = snapshot.sources[0].ranks
        if named and named[0] not in given:
            rank = named[0]
        else:
            candidates = [*timeline.ranks, *range(len(timeline.ranks) + len(snapshots) + len(taken) + 1)]
            rank = next(each for each in candidates if each not in taken | given)
            if named:
                snapshot = snapshot.with_notes(  # noqa: PLW2901 the same one with a note
                    f"`{snapshot.sources[0].file}` is a second snapshot of rank {named[0]}, and shown as rank {rank}"
                )
        given.add(rank)
        placed.append(_as_rank(snapshot, rank, timeline.epoch_ns or 0))
    frames = {signal: Frame.join([each[signal] for each in (timeline, *placed)]) for signal in SIGNALS}
    return timeline.beside(placed, frames, *(note for each in placed for note in each.notes))


def _as_rank(snapshot: Timeline, rank: int, zero_ns: int) -> Timeline:
    def on_clock(times_ns: Ints) -> Ints:
        return np.where(times_ns >= _SINCE_1970_NS, times_ns - zero_ns, times_ns)

    frames = {
        signal: rows.with_columns(start_ns=on_clock(rows.start_ns), end_ns=on_clock(rows.end_ns))
        for signal, rows in snapshot.frames.items()
    }
    return replace(snapshot, frames=frames).as_rank(rank)

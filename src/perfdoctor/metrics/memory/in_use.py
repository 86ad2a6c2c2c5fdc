"""How much memory was in use after each event of a snapshot, in which pieces, and by whom?

The snapshot is the end, and what lives then is known exactly; before that, each allocation counts from its place in the
row of events to the place at which its memory could be used again. Position -1 is the state before the first event.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Timeline

#: Requests up to this size are cut from small segments (kSmallSize of CUDACachingAllocator).
_SMALL_REQUEST_BYTES = 1 << 20
_SMALL_SEGMENT_BYTES = 2 << 20
#: torch hands out 64 streams of a device; more are damage.
_MOST_STREAMS = 256
_SIGNALS = ("allocations", "memory_segments", "memory_events")


class SnapshotReplay(Struct, frozen=True, dict=True):
    """The memory of one device, as one snapshot shows it."""

    rank: int
    device: int
    allocations: Frame
    segments: Frame
    events: Frame

    @cached_property
    def active(self) -> tuple[Ints, Ints]:
        """(positions, bytes in use behind each), ascending; the first is -1."""
        size, made, freed = (self.allocations[column] for column in ("bytes", "made_at", "freed_at"))
        is_made, is_freed = made != UNKNOWN, freed != UNKNOWN
        at = np.concatenate((made[is_made], freed[is_freed]))
        order = np.argsort(at, kind="stable")
        change = np.concatenate((size[is_made], -size[is_freed]))[order]
        start = int(size[~is_made].sum())
        positions = np.concatenate(([-1], at[order])).astype(np.int64)
        return positions, np.concatenate(([start], start + change.cumsum())).astype(np.int64)

    def active_at(self, position: int) -> int:
        """Bytes in use after the event at this position."""
        positions, used = self.active
        return int(used[np.searchsorted(positions, position, side="right") - 1])

    @cached_property
    def peak_at(self) -> int:
        """The first position behind which most was in use."""
        positions, used = self.active
        return int(positions[used.argmax()])

    def alive_at(self, position: int) -> Mask:
        """Which allocations were in use behind this position?"""
        made, freed = self.allocations["made_at"], self.allocations["freed_at"]
        alive: Mask = (made <= position) & ((freed == UNKNOWN) | (freed > position))
        return alive

    @cached_property
    def reserved(self) -> tuple[Ints, Ints]:
        """(positions, bytes reserved behind each), ascending; the first is -1."""
        growing = self.events.name.equals("segment_alloc", "segment_map")
        falling = self.events.name.equals("segment_free", "segment_unmap")
        rows = np.flatnonzero(growing | falling)
        rows = rows[np.argsort(self.events["at"][rows], kind="stable")]
        change = np.where(growing, self.events["bytes"], -self.events["bytes"])[rows]
        total = int(self.segments["bytes"].sum())
        before = np.concatenate(([total - change.sum()], change)).cumsum()
        return np.concatenate(([-1], self.events["at"][rows])).astype(np.int64), before.astype(np.int64)

    def reserved_at(self, position: int) -> int:
        positions, total = self.reserved
        return int(total[np.searchsorted(positions, position, side="right") - 1])

    def free_pieces(self, position: int) -> Ints:
        """Sizes of the free pieces between the allocations behind this position, each inside of one segment."""
        starts, ends = self._segments_at(position)
        alive = self.alive_at(position)
        made, size = self.allocations["address"][alive], self.allocations["bytes"][alive]
        inside = np.searchsorted(starts, made, side="right") - 1
        known = (inside >= 0) & (made < ends[np.maximum(inside, 0)]) if starts.size else np.zeros(made.size, bool)
        made, size = made[known], size[known]
        # A piece begins where a segment begins or an allocation ends, and ends where the next one begins: as these
        # lie one behind the other, the n-th beginning and the n-th end are those of one piece.
        pieces = np.sort(np.concatenate((made, ends))) - np.sort(np.concatenate((starts, made + size)))
        found: Ints = pieces[pieces > 0]
        return found

    def _segments_at(self, position: int) -> tuple[Ints, Ints]:
        """Starts and ends: those of the snapshot with everything undone that came behind the position."""
        fixed = ~self.segments["is_expandable"].astype(bool)
        address, size = self.segments["address"], self.segments["bytes"]
        single = dict(zip(address[fixed].tolist(), size[fixed].tolist(), strict=True))
        growing = Intervals.of(address[~fixed], (address + size)[~fixed])
        later = np.flatnonzero(self.events["at"] > position)
        later = later[np.argsort(-self.events["at"][later], kind="stable")]
        for row in later.tolist():
            action, start = self.events.name[row], int(self.events["address"][row])
            piece = Intervals.single(start, start + int(self.events["bytes"][row]))
            if action == "segment_alloc":
                single.pop(start, None)
            elif action == "segment_free":
                single[start] = int(self.events["bytes"][row])
            elif action == "segment_map":
                growing = growing - piece
            elif action == "segment_unmap":
                growing = growing | piece
        starts = np.concatenate((np.array(list(single), np.int64), growing.starts))
        ends = np.concatenate((np.array([start + size for start, size in single.items()], np.int64), growing.ends))
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order]

    def refits(self) -> Refits:
        """Large segments that the driver had to give although as much lay free: no free piece was large enough.

        Only memory of the same stream counts, since a block is never handed to another, and only large requests.
        """
        found: list[tuple[int, int, SnapshotReplay]] = []
        for stream in np.unique(self.events["stream"])[:_MOST_STREAMS].tolist():
            here = self._large_of(stream)
            asking = np.flatnonzero(here.events.name.equals("segment_alloc"))
            for at, asked in zip(
                here.events["at"][asking].tolist(), here.events["bytes"][asking].tolist(), strict=True
            ):
                free = here.reserved_at(at - 1) - here.active_at(at - 1)
                if free >= asked:
                    found.append((free, at, here))
        if not found:
            return Refits(0, 0, 0, 0)
        free, at, here = max(found, key=lambda refit: refit[0])
        return Refits(len(found), self.reserved_at(at - 1), free, int(here.free_pieces(at - 1).max(initial=0)))

    def _large_of(self, stream: int) -> SnapshotReplay:
        """One stream's large segments, and what was cut from them."""
        segments, events, allocations = (
            frame.of(stream=stream) for frame in (self.segments, self.events, self.allocations)
        )
        return SnapshotReplay(
            self.rank,
            self.device,
            allocations.take(allocations["requested_bytes"] > _SMALL_REQUEST_BYTES),
            segments.take(segments["bytes"] > _SMALL_SEGMENT_BYTES),
            events.take(events["bytes"] > _SMALL_SEGMENT_BYTES),
        )


class Refits(Struct, frozen=True):
    """`count`: how often the driver gave memory although as much lay free in pieces.

    The bytes are of the moment when most lay free: reserved, free in this stream, and in the largest free piece.
    """

    count: int
    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int


def replays(timeline: Timeline) -> Iterator[SnapshotReplay]:
    """The replay of each rank and device of which a snapshot was read."""
    frames = [timeline[signal] for signal in _SIGNALS]
    places = {place for frame in frames for place in zip(frame["rank"].tolist(), frame["device"].tolist(), strict=True)}
    for rank, device in sorted(places):
        yield SnapshotReplay(rank, device, *(frame.of(rank=rank, device=device) for frame in frames))

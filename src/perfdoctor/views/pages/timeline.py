"""What happened when? The analysed window as tracks: each GPU with its streams, each rank's host with its threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.accounting.longest import analysed_span
from perfdoctor.metrics.program import basis_of
from perfdoctor.model.columns import UNKNOWN, Ints, Text
from perfdoctor.model.device_work import SIGNALS, launching_calls
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Timeline
from perfdoctor.records.diagnosis import Diagnosis
from perfdoctor.records.findings import Advice, Span, with_symptoms
from perfdoctor.records.views import TimelineView, Track, TrackGroup
from perfdoctor.views.timeline.lanes import DrawnWindow, Lane, OfSignal, details
from perfdoctor.views.timeline.places import idle_lane, memory_lanes, sampled_lanes, step_lane, typical_step
from perfdoctor.views.timeline.signals import collective_lanes, device_lanes, host_lanes
from perfdoctor.views.timeline.thin import JOINED_BYTES, LONE_BYTES, Thinned, thinned

#: The packed size of a timeline, so that the whole report is smaller than 1.5 MB.
MOST_BYTES = 900_000
#: The packed size of one character of a name.
_LETTER_BYTES = 0.4
#: The names are known only after pieces are chosen: then pieces are chosen again with what names leave.
_MOST_TRIES = 3
#: Around a finding's moment no events are merged for its own length on both sides, and at least for this long.
_LEAST_AROUND_NS = 200_000
#: Longer texts are shown shortened.
_MOST_LETTERS = 1_000


def view(run: Run, diagnosis: Diagnosis, most_bytes: int = MOST_BYTES) -> Iterator[TimelineView]:
    """Yield one view of at most `most_bytes` packed bytes; none for a recording without a timeline."""
    drawn = timeline_of(run, diagnosis.findings, most_bytes)
    if drawn:
        yield drawn


def timeline_of(run: Run, findings: Sequence[Advice], most_bytes: int = MOST_BYTES) -> TimelineView | None:
    """Return the view, in which the moments of these findings are not thinned; None without a timeline."""
    found = analysed_span(run)
    if found is None:
        return None
    window = DrawnWindow(*found)
    groups = [(group, lanes) for group, lanes in _groups(run, window) if lanes]
    lanes = [lane for _, of_group in groups for lane in of_group]
    if not lanes:
        return None
    typical = typical_step(run, window)
    drawn, whole = _fitting(lanes, typical, list(_around(findings, window)), most_bytes)
    names = _Names()
    of_group = np.repeat(np.arange(len(groups)), [len(lanes) for _, lanes in groups]).tolist()
    launches = _launches(run.timeline, drawn, window)
    tracks = tuple(_track(*each, names) for each in zip(of_group, drawn, launches, strict=True))
    return TimelineView(
        length_ns=window.length_ns, typical=typical, whole=tuple(whole), names=tuple(names.known),
        groups=tuple(group for group, _ in groups), tracks=tracks, pieces_in_all=sum(map(len, lanes)),
    )  # fmt: skip


def _groups(run: Run, window: DrawnWindow) -> Iterator[tuple[TrackGroup, list[Lane]]]:
    """Groups of tracks by rank, its GPUs first; some have nothing in the window."""
    timeline = run.timeline
    on_device, on_host = device_lanes(timeline, window), host_lanes(timeline, window)
    held, sampled = memory_lanes(timeline, window), sampled_lanes(run, window)
    accounted: dict[tuple[int, int | None], list[Lane]] = {}
    for place in run.places:
        lanes = [lane for lane in (step_lane(place, window), idle_lane(place, window)) if lane is not None]
        if isinstance(place, HostPlace):
            lanes += collective_lanes(place, window)
        accounted[place.rank, place.device] = lanes
    gpus = {*on_device, *((rank, device) for rank, device in accounted if device is not None)}
    gpus |= {(rank, device) for rank, device in held if device != UNKNOWN}
    thread = basis_of(run).prose("training thread")
    for rank in sorted({rank for rank, _ in (*accounted, *gpus)} | set(on_host)):
        for device in sorted(device for of_rank, device in gpus if of_rank == rank):
            at = rank, device
            lanes = [*accounted.get(at, ()), *on_device.get(at, ()), *held.get(at, ()), *sampled.get(at, ())]
            yield TrackGroup(f"rank {rank} · GPU {device}", rank, device), lanes
        yield TrackGroup(f"rank {rank} · {thread}", rank, None), accounted.get((rank, None), [])
        host = [*on_host.get(rank, ()), *held.get((rank, UNKNOWN), ())]
        yield TrackGroup(f"rank {rank} · host", rank, None), host


def _around(findings: Sequence[Advice], window: DrawnWindow) -> Iterator[tuple[int, int]]:
    """The moments of the findings with some time around them, costliest finding first."""
    for advice in with_symptoms(findings):
        for span in advice.evidence:
            if isinstance(span, Span):
                margin = max(span.end_ns - span.start_ns, _LEAST_AROUND_NS)
                yield max(span.start_ns - margin, 0), min(span.end_ns + margin, window.length_ns)


def _fitting(
    lanes: Sequence[Lane], typical: tuple[int, int], moments: Sequence[tuple[int, int]], most_bytes: int
) -> tuple[list[Thinned], Intervals]:
    """Thin the lanes until their pieces and names fit into `most_bytes`."""
    budget = most_bytes
    for _ in range(_MOST_TRIES):
        drawn, whole = thinned(lanes, budget, typical, moments)
        names = int(_letters(drawn) * _LETTER_BYTES)
        pieces, lone = sum(map(len, drawn)), sum(int((each.count == 1).sum()) for each in drawn)
        if lone * LONE_BYTES + (pieces - lone) * JOINED_BYTES + names <= most_bytes:
            break
        budget = max(most_bytes - names, most_bytes // 4)
    return drawn, whole


def _letters(drawn: Sequence[Thinned]) -> int:
    """The number of characters in the different names and details of these pieces."""
    texts: dict[int, list[Text]] = {}  # by their values, which the tracks of a signal share
    for each in drawn:
        lone = each.piece[each.count == 1]
        for text in (each.lane.names(each.piece), details(each.lane, lone)):
            texts.setdefault(id(text.values), []).append(text)
    total = 0
    for alike in texts.values():
        codes = np.unique(np.concatenate([text.codes for text in alike])).tolist()
        total += sum(min(len(alike[0].values[code]), _MOST_LETTERS) for code in codes)
    return total


class _Names:
    """The texts of a view, each once."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def places(self, text: Text, otherwise: str = "") -> Ints:
        """The index of each row's text, or of `otherwise` where it is empty; -1 where both are empty."""
        table = np.full(len(text.values), -1, np.int64)
        for code in np.unique(text.codes).tolist():
            value = text.values[code] or otherwise
            if value:
                table[code] = self.known.setdefault(value, len(self.known))
        places: Ints = table[text.codes] if table.size else np.empty(0, np.int64)
        return places


class _LaunchingCall(Struct, frozen=True):
    """The track and the start of the call that launched each piece; -1 and 0 if unknown."""

    track: Ints
    at_ns: Ints


def _launches(timeline: Timeline, drawn: Sequence[Thinned], window: DrawnWindow) -> Iterator[_LaunchingCall]:
    """Find the launching calls of the `drawn` device work that is not merged; unknown for all other pieces."""
    calls = timeline.calls
    track_of_call = np.full(len(calls), -1, np.int32)
    for number, each in enumerate(drawn):
        if each.lane.kind == "calls" and isinstance(each.lane.pieces, OfSignal):
            track_of_call[each.lane.pieces.rows] = number
    for each in drawn:
        track, at_ns = np.full(len(each), -1, np.int64), np.zeros(len(each), np.int64)
        kind, of = each.lane.kind, each.lane.pieces
        if kind in SIGNALS and isinstance(of, OfSignal) and of.frame is timeline[kind] and len(calls):
            lone = np.flatnonzero(each.count == 1)
            call = launching_calls(timeline, kind)[of.rows[each.piece[lone]]]
            is_known = (call != UNKNOWN) & (track_of_call[call] >= 0)
            track[lone[is_known]] = track_of_call[call[is_known]]
            at_ns[lone[is_known]] = calls.start_ns[call[is_known]] - window.start_ns
        yield _LaunchingCall(track, at_ns)


def _track(group: int, each: Thinned, launch: _LaunchingCall, names: _Names) -> Track:
    lane = each.lane
    detail = np.full(len(each), -1, np.int64)
    lone = np.flatnonzero(each.count == 1)
    detail[lone] = names.places(details(lane, each.piece[lone]))
    return Track(
        group=group, kind=lane.kind, title=lane.title, start_ns=each.start_ns, duration_ns=each.duration_ns,
        name=names.places(lane.names(each.piece), "(no name)"), row=each.row, count=each.count, busy_ns=each.busy_ns,
        launch_track=launch.track, launch_ns=launch.at_ns, detail=detail, values=each.values, unit=lane.unit,
    )  # fmt: skip

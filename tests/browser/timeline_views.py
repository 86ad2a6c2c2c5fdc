"""Timelines made by hand: every number in them is known."""

from __future__ import annotations

import numpy as np

from perfdoctor.records.views import TimelineView, Track, TrackGroup

US, MS = 1_000, 1_000_000
IMAGE = "</script><img src=x onerror=alert(1)>"


class Names:
    """Texts, each stored once."""

    def __init__(self):
        self.texts: list[str] = []

    def place(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)


def track(names, group, kind, title, pieces, **more):
    """Of pieces as dicts: start, duration, name, and what else a piece may have."""

    def column(key, usual):
        return np.array([piece.get(key, usual) for piece in pieces], dtype=np.int64)

    start, duration = column("start", 0), column("duration", 0)
    return Track(
        group=group,
        kind=kind,
        title=title,
        start_ns=start,
        duration_ns=duration,
        name=np.array([names.place(piece["name"]) for piece in pieces], dtype=np.int64),
        row=column("row", 0),
        count=column("count", 1),
        busy_ns=np.array([piece.get("busy", piece["duration"]) for piece in pieces], dtype=np.int64),
        launch_track=column("launch_track", -1),
        launch_ns=column("launched", -1),
        detail=np.array([names.place(piece["detail"]) if "detail" in piece else -1 for piece in pieces]),
        **more,
    )


def counter(names, group, title, start, values, unit):
    pieces = [{"start": at, "duration": 0, "name": title} for at in start]
    return track(names, group, "counter", title, pieces, values=np.array(values, dtype=float), unit=unit)


def piece(start, duration, name, **more):
    return {"start": start, "duration": duration, "name": name, **more}


#: Places of the tracks of `small`.
STEPS, IDLE, KERNELS, COUNTER, OPS, CALLS, OTHER_STEPS, OTHER_KERNELS = range(8)
STEP_NS = 10 * MS
LENGTH_NS = 4 * STEP_NS


def small(hostile: str = "aten::linear") -> TimelineView:
    """Two ranks of four steps of 10 ms: a kernel of 2 ms in each, launched 1.5 ms before, and one piece of merged events."""
    names = Names()
    groups = (
        TrackGroup("rank 0 · GPU 0", 0, 0),
        TrackGroup("rank 0 · host", 0, None),
        TrackGroup("rank 1 · GPU 1", 1, 1),
    )
    tracks = (
        track(names, 0, "step", "steps", _each(lambda at, n: piece(at, STEP_NS, f"step {n}"))),
        track(names, 0, "idle", "idle by cause", _each(lambda at, n: piece(at + 6 * MS, MS, "input_wait"))),
        track(names, 0, "kernels", "stream 7 · kernels", [*_each(_kernel), _dense()]),
        counter(names, 0, "memory", [0, 10 * MS, 20 * MS, 30 * MS], [1 << 30, 2 << 30, np.nan, 1 << 29], "bytes"),
        track(names, 1, "ops", "thread 1 · ops", _each(lambda at, n: piece(at + 2 * MS, 3 * MS, hostile)) + _inner()),
        track(names, 1, "calls", "thread 1 · CUDA calls", _each(_call)),
        track(names, 2, "step", "steps", _each(lambda at, n: piece(at, STEP_NS, f"step {n}"))),
        track(names, 2, "kernels", "stream 7 · kernels", _each(lambda at, n: piece(at + 7 * MS, MS, "reduce_kernel"))),
    )
    tracks = tuple(_by_start(each) for each in tracks)
    pieces = sum(int(each.count.sum()) for each in tracks)
    return TimelineView(
        LENGTH_NS, (STEP_NS, 2 * STEP_NS), ((0, LENGTH_NS),), tuple(names.texts), groups, tracks, pieces
    )


def _each(made):
    return [made(n * STEP_NS, n) for n in range(4)]


def _kernel(at, n):
    name = "void at::native::gemm_kernel<float, 4>(int)"
    return piece(
        at + 4 * MS, 2 * MS + n * 111, name, launch_track=CALLS, launched=at + 2_500_000, detail=f"train.py:{n + 7}"
    )


def _call(at, n):
    return piece(at + 2_500_000, 20 * US, "cudaLaunchKernel")


def _dense():
    return piece(38 * MS, MS, "elementwise", count=1234, busy=870_000)


def _inner():
    return _each(lambda at, n: piece(at + 2 * MS, MS, "aten::addmm", row=1))


def _by_start(each: Track) -> Track:
    order = np.argsort(each.start_ns, kind="stable")
    columns = {
        key: getattr(each, key)[order]
        for key in ("start_ns", "duration_ns", "name", "row", "count", "busy_ns", "launch_track", "launch_ns", "detail")
    }
    return Track(group=each.group, kind=each.kind, title=each.title, values=each.values, unit=each.unit, **columns)

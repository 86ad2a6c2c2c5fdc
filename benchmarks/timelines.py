"""Which timeline is hard to draw? Many ranks, streams and threads, all of them full of short pieces."""

from __future__ import annotations

import numpy as np

from perfdoctor.records.views import TimelineView, Track, TrackGroup

MS = 1_000_000
_KERNEL_NAMES = tuple(f"void at::native::elementwise_kernel<{i}>(int, Functor{i})" for i in range(40))
_OP_NAMES = tuple(f"aten::op_{i}" for i in range(40))
_CAUSES = ("launch_bound", "host_sync", "unknown")
NAMES = (*_KERNEL_NAMES, *_OP_NAMES, *_CAUSES, *(f"step {i}" for i in range(12)))
_OP, _CAUSE, _STEP = 40, 80, 83


def dense(pieces: int, *, ranks: int = 4, steps: int = 12, step_ns: int = 100 * MS, seed: int = 7) -> TimelineView:
    """`pieces` of kernels and ops, half and half, spread evenly over streams and threads of each rank and over all time.

    Kernels fill a share of their time that is known (see `busy_share`), so that what is drawn can be compared with it.
    """
    random = np.random.default_rng(seed)
    length_ns = steps * step_ns
    a_track = pieces // (ranks * 6)
    groups, tracks = [], []
    for rank in range(ranks):
        device, host = len(groups), len(groups) + 1
        groups += [TrackGroup(f"rank {rank} · GPU {rank}", rank, rank), TrackGroup(f"rank {rank} · host", rank, None)]
        tracks.append(_steps(device, steps, step_ns))
        host_track = len(tracks) + 4
        streams = [(f"stream {7 + stream}", host_track + stream) for stream in range(3)]
        tracks.extend(_kernels(random, device, title, a_track, length_ns, asked_by) for title, asked_by in streams)
        tracks.extend(_ops(random, host, f"thread {100 + thread}", a_track, length_ns) for thread in range(3))
    return TimelineView(
        length_ns=length_ns,
        typical=(5 * step_ns, 6 * step_ns),
        whole=((0, length_ns),),
        names=NAMES,
        groups=tuple(groups),
        tracks=tuple(tracks),
        pieces_in_all=sum(track.start_ns.size for track in tracks),
    )


def busy_share(track: Track, start_ns: int, end_ns: int) -> float:
    """The share of a stretch that pieces of a track fill, where none overlap: plain sums, no pixels."""
    ends = track.start_ns + track.busy_ns
    inside = np.minimum(ends, end_ns) - np.maximum(track.start_ns, start_ns)
    return float(inside.clip(0).sum()) / (end_ns - start_ns)


def _steps(group: int, steps: int, step_ns: int) -> Track:
    start = np.arange(steps) * step_ns
    return _track(group, "step", "steps", start, np.full(steps, step_ns), _STEP + np.arange(steps) % 12)


def _kernels(random: np.random.Generator, group: int, title: str, pieces: int, length_ns: int, asked_by: int) -> Track:
    every = length_ns // pieces
    start = np.arange(pieces) * every
    duration = (every * random.uniform(0.2, 0.9, pieces)).astype(np.int64)
    name = random.integers(0, _OP, pieces)
    launch = np.maximum(start - every, 0)
    return _track(group, "kernels", title, start, duration, name, launch_track=asked_by, launch_ns=launch)


def _ops(random: np.random.Generator, group: int, title: str, pieces: int, length_ns: int) -> Track:
    """Rows of three: each outer piece holds two within, one of which holds another."""
    outer = pieces // 4
    every = length_ns // outer
    start = np.arange(outer) * every
    inside = [
        (start, every * 0.9, 0),
        (start, every * 0.4, 1),
        (start + every // 2, every * 0.3, 1),
        (start, every * 0.2, 2),
    ]
    starts = np.concatenate([each for each, _, _ in inside])
    durations = np.concatenate([np.full(outer, int(length)) for _, length, _ in inside])
    rows = np.concatenate([np.full(outer, row) for _, _, row in inside])
    order = np.lexsort((rows, starts))
    name = _OP + random.integers(0, _OP, starts.size)
    return _track(group, "ops", title, starts[order], durations[order], name, row=rows[order])


def _track(group, kind, title, start, duration, name, *, row=None, launch_track=-1, launch_ns=None) -> Track:
    size = start.size
    return Track(
        group=group,
        kind=kind,
        title=title,
        start_ns=start.astype(np.int64),
        duration_ns=duration.astype(np.int64),
        name=np.asarray(name, dtype=np.int64),
        row=np.zeros(size, np.int64) if row is None else row.astype(np.int64),
        count=np.ones(size, np.int64),
        busy_ns=duration.astype(np.int64),
        launch_track=np.full(size, launch_track),
        launch_ns=np.full(size, -1) if launch_ns is None else launch_ns,
        detail=np.full(size, -1),
    )

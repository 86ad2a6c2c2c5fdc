"""In which recordings must no rule raise? Drawn ones of every shape that a program can have, and one of many rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from perfdoctor.model.columns import Column, Text
from perfdoctor.model.timeline import SIGNALS, Frame, Timeline, merge
from perfdoctor.own_rules.drawn import draw, timeline

_STEP = {
    "kernels": "#### GGG ++  ee",
    "nccl": "       ===     ",
    "copies": "hh           d ",
    "host": ["lll l ll  l    ", "   o oooo      ", "          s  ii"],
}
_HOST = {"host": ["oooo oooo   oo ", "    i    rrr   "]}
#: Names are anybody's: long, of another alphabet, with markup, braces and control characters, or none at all.
_HOSTILE = ("", "{kernels_ms}", "<script>alert(1)</script>", "x" * 5_000, "ядро\x1b[31m", "a\nb\x00c", "%s %d {0!r}")
_OPS = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::mm", "aten::addmm", "aten::add", "aten::mul")
#: A rule that is slow is slow here.
MANY_ROWS = 200_000


def recordings() -> Iterator[tuple[str, Timeline]]:
    """Every drawn recording, with what it is."""
    yield "nothing recorded", timeline()
    yield "every signal recorded, without rows", timeline(recorded=SIGNALS)
    yield "one rank", draw(**_STEP, repeat=6, unit_us=1000)  # type: ignore[arg-type]
    yield "four ranks", ranks(4)
    yield "a run without a GPU", draw(**_HOST, repeat=6, unit_us=1000)  # type: ignore[arg-type]
    yield "no steps", draw(**_STEP, unit_us=1000)  # type: ignore[arg-type]
    yield "two steps", draw(**_STEP, repeat=2, unit_us=1000)  # type: ignore[arg-type]
    yield "a single kernel", draw(kernels="#")
    yield "kernels alone", draw(kernels="## ##", repeat=4, recorded=["kernels", "ranges"])
    yield "ranges alone", draw(host=["rrr "], repeat=4, mark=None)
    yield "an idle GPU", draw(kernels="#" + " " * 99, host=["l"], repeat=6)
    yield "CUDA graphs", draw(kernels="@@@@ ", host=["@    "], repeat=6)
    yield "rows of no length", _of_no_length(draw(**_STEP, repeat=6))  # type: ignore[arg-type]
    yield "hostile names", _renamed(ranks(2))
    yield "no names", _renamed(ranks(2), ("",))


def ranks(count: int) -> Timeline:
    """A recording of `count` ranks, the last of which is late at their collective."""
    late = {**_STEP, "kernels": "#### GGGG++  ee", "nccl": "        ==     "}
    drawn = [_STEP] * (count - 1) + [late]
    return merge([
        draw(**each, rank=rank, repeat=6, unit_us=1000, world_size=count, group="0")  # type: ignore[arg-type]
        for rank, each in enumerate(drawn)
    ])  # fmt: skip


def many_rows(rows: int = MANY_ROWS) -> Timeline:
    """The steps of two ranks again and again, until so many kernels are there, launched in common ops."""
    once = _renamed(ranks(2), _OPS, ("ops",))
    times = max(rows // max(len(once.kernels), 1), 1)
    rows_of = [frame for frame in once.frames.values() if len(frame)]
    length = max(int(frame.end_ns.max()) for frame in rows_of) - min(int(frame.start_ns[0]) for frame in rows_of)
    return Timeline.build(
        {signal: _repeated(frame, times, length) for signal, frame in once.frames.items()},
        once.recorded, devices=once.devices, world_size=once.world_size,
    )  # fmt: skip


def _repeated(frame: Frame, times: int, length_ns: int) -> Frame:
    """The rows of `frame`, `times` after each other, `length_ns` apart. A launch stays that of its kernel."""
    if not len(frame):
        return frame
    count = np.repeat(np.arange(times, dtype=np.int64), len(frame))
    rows = np.tile(np.arange(len(frame)), times)
    columns: dict[str, Column] = dict(frame.take(rows).columns)
    for name in ("start_ns", "end_ns"):
        columns[name] = frame[name][rows] + count * length_ns
    if "correlation" in columns:
        known = frame["correlation"][rows]
        columns["correlation"] = np.where(known >= 0, known + count * 10_000_000, known)
    return Frame(columns).sorted()


def _of_no_length(recording: Timeline) -> Timeline:
    ended: Mapping[str, Frame] = {
        signal: frame.with_columns(end_ns=frame.start_ns) for signal, frame in recording.frames.items()
    }
    return replace(recording, frames=ended)


def _renamed(
    recording: Timeline,
    names: tuple[str, ...] = _HOSTILE,
    signals: tuple[str, ...] = ("kernels", "collectives", "copies", "ops"),
) -> Timeline:
    """The recording with these `names` for work and ops; ranges, and so steps, keep theirs."""
    frames = dict(recording.frames)
    for signal in signals:
        frame = frames[signal]
        if len(frame):
            frames[signal] = frame.with_columns(name=Text(np.arange(len(frame), dtype=np.int32) % len(names), names))
    return replace(recording, frames=frames)

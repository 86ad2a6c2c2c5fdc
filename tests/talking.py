"""A job without a GPU, drawn: ranks compute, and stand still in all-reduces that a thread of their library sends."""

from __future__ import annotations

from collections.abc import Sequence

from builders import timeline

from perfdoctor.model.timeline import Timeline

UNIT_NS = 100_000
#: The call takes a microsecond, and the library's thread begins this much after the training thread asked.
ASKING_NS, DISPATCH_NS = 1_000, 20_000
_BEGIN_NS = 1_000_000
_LIBRARY = 2


def talking(
    computing: Sequence[int | Sequence[int]],
    sending: int | Sequence[int],
    *,
    steps: int = 6,
    parts: int = 1,
    more: Sequence[Sequence[int]] = (),
    asleep: Sequence[int] = (),
    shapes: str = "",
) -> tuple[Timeline, int]:
    """Ranks that compute so many units in front of each of `parts` all-reduces a step, and stand still in it.

    `computing` is by rank: units, or units of each part; `sending` units, or those of each part. Returns the timeline
    and the step in units: until the last rank has come, and then `sending`, part by part. `more`: by step and rank,
    units that it computes beyond that in front of the first all-reduce. `asleep`: by rank, units in which it runs
    nothing before that. `shapes`: those of what it multiplies.
    """
    each = [[own] * parts if isinstance(own, int) else list(own) for own in computing]
    sent = [sending] * parts if isinstance(sending, int) else list(sending)
    rows: dict[str, list[dict[str, object]]] = {"ops": [], "ranges": []}
    at = _BEGIN_NS
    for step in range(steps):
        begun = at
        for part in range(parts):
            beyond = more[step] if more and not part else [0] * len(each)
            units = [own[part] + longer for own, longer in zip(each, beyond, strict=True)]
            begin = [at + (asleep[rank] if asleep and not part else 0) * UNIT_NS for rank in range(len(each))]
            asked = [start + own * UNIT_NS for start, own in zip(begin, units, strict=True)]
            over = max(asked) + sent[part] * UNIT_NS
            for rank, start in enumerate(begin):
                _add(rows, rank, start, asked[rank], over, shapes)
            at = over
        for rank in range(len(each)):
            mark = {"start_ns": begun, "end_ns": at, "name": f"ProfilerStep#{step}"}
            rows["ranges"].append({**mark, **_of(rank)})
    return timeline(**rows, world_size=len(each)), (at - _BEGIN_NS) // UNIT_NS // steps


def _add(rows: dict[str, list[dict[str, object]]], rank: int, begin: int, asked: int, over: int, shapes: str) -> None:
    given = {"input_shapes": shapes, "input_types": '["float", "float"]'} if shapes else {}
    sent_shapes = {"input_shapes": "[[[64, 128]], [], []]"} if shapes else {}
    rows["ops"] += [
        {"start_ns": begin, "end_ns": asked, "name": "aten::mm", **_of(rank), **given},
        {"start_ns": asked, "end_ns": asked + ASKING_NS, "name": "c10d::allreduce_", **_of(rank), **sent_shapes},
    ]
    sent = {"start_ns": asked + DISPATCH_NS, "end_ns": over, "name": "gloo:all_reduce", "thread": _LIBRARY}
    rows["ranges"].append({**sent, **_of(rank)})


def _of(rank: int) -> dict[str, int]:
    return {"rank": rank, "process": 100 + rank}

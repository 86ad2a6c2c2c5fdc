"""Which details are shown of a selected event: shapes of an op, size and direction of a copy, group of a collective?

Numbers are exact: reports round where they show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from perfdoctor.model.columns import UNKNOWN, Ints, Text
from perfdoctor.model.timeline import Frame
from perfdoctor.views.timeline.lanes import Lane, OfSignal, apart

_POWERS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_NOTHING = {"", "unknown", "none"}


def details(lane: Lane, pieces: Ints) -> Text:
    """A text for each of these pieces of the lane; "" where there is none."""
    describe = _DETAILS.get(lane.kind)
    if not isinstance(lane.pieces, OfSignal) or describe is None or not pieces.size:
        return Text.constant("", pieces.size)
    return describe(lane.pieces.frame.take(lane.pieces.rows[pieces]))


def exact_size(size_bytes: int) -> str:
    """Bytes in the largest unit that gives an integer: `4 MiB`, `3,136 B`."""
    unit, scale = next(((unit, scale) for unit, scale in _POWERS if size_bytes and size_bytes % scale == 0), ("B", 1))
    return f"{size_bytes // scale:,} {unit}"


def _kernel(rows: Frame) -> Text:
    def words(blocks: int, threads: int, is_graph: int) -> Iterator[str]:
        if is_graph:
            yield "one launch of a CUDA graph"
        if blocks != UNKNOWN:
            yield f"{blocks:,} blocks" + (f" of {threads:,} threads" if threads != UNKNOWN else "")

    return _each(words, rows["blocks"], rows["threads_per_block"], rows["is_graph"].astype(np.int64))


def _copy(rows: Frame) -> Text:
    direction, memory = rows.text("direction"), rows.text("host_memory")

    def words(way: int, size: int, where: int) -> Iterator[str]:
        yield direction.values[way]
        yield exact_size(size) if size != UNKNOWN else ""
        yield memory.values[where]

    return _each(words, _codes(direction), rows["bytes"], _codes(memory))


def _collective(rows: Frame) -> Text:
    kind, group, data_type = rows.text("kind"), rows.text("group"), rows.text("data_type")

    def words(what: int, size: int, which: int, members: int, unit: int) -> Iterator[str]:
        yield kind.values[what]
        yield exact_size(size) if size != UNKNOWN else ""
        yield f"{members} ranks" if members != UNKNOWN else ""
        yield f"group {group.values[which]}" if group.values[which] else ""
        yield data_type.values[unit]

    return _each(words, _codes(kind), rows["bytes"], _codes(group), rows["group_size"], _codes(data_type))


def _op(rows: Frame) -> Text:
    return rows.text("input_shapes")


_DETAILS: dict[str, Callable[[Frame], Text]] = {
    "kernels": _kernel, "copies": _copy, "collectives": _collective, "ops": _op,
}  # fmt: skip


def _codes(text: Text) -> Ints:
    return text.codes.astype(np.int64)


def _each(words: Callable[..., Iterator[str]], *columns: Ints) -> Text:
    """The words of each row, computed once for each different combination."""
    keys, which = apart(list(columns))
    texts = [", ".join(word for word in words(*key) if word not in _NOTHING) for key in keys]
    return Text(which.astype(np.int32), texts)

"""Which details are shown of a selected event: shapes of an op, size and direction of a copy, group of a collective?

Numbers are exact: reports round where they show them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.model.columns import UNKNOWN, Ints, Text
from perfdoctor.model.timeline import Frame
from perfdoctor.views.timeline.lanes import Lane, OfSignal, apart
from perfdoctor.vocabulary.signals import SIGNALS, DeclaredColumn

_POWERS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
#: Values of columns that say nothing.
_NOTHING = ("", "unknown", "none", UNKNOWN)


def details(lane: Lane, pieces: Ints) -> Text:
    """A text for each of these pieces of the lane, of its signal's columns that are `shown`; "" where there is none."""
    of_signal = SIGNALS[lane.kind].details if lane.kind in SIGNALS else {}
    columns = {name: column for name, column in of_signal.items() if column.shown}
    if not isinstance(lane.pieces, OfSignal) or not columns or not pieces.size:
        return Text.constant("", pieces.size)
    return _texts(lane.pieces.frame.take(lane.pieces.rows[pieces]), columns)


def exact_size(size_bytes: int) -> str:
    """Bytes in the largest unit that gives an integer: `4 MiB`, `3,136 B`."""
    unit, scale = next(((unit, scale) for unit, scale in _POWERS if size_bytes and size_bytes % scale == 0), ("B", 1))
    return f"{size_bytes // scale:,} {unit}"


def _texts(rows: Frame, columns: dict[str, DeclaredColumn]) -> Text:
    """The details of each row, put together once for each different combination of values."""
    values = [rows.columns[name] for name in columns]
    keys, which = apart([(each.codes if isinstance(each, Text) else each).astype(np.int64) for each in values])

    def words(key: tuple[int, ...]) -> Iterator[str]:
        for code, column, of_rows in zip(key, columns.values(), values, strict=True):
            value = of_rows.values[code] if isinstance(of_rows, Text) else code
            if value not in _NOTHING and (value or column.kind is not bool):
                text = column.shown.format(value=value, size=exact_size(code))
                yield text if text.startswith(" ") else f", {text}"

    return Text(which.astype(np.int32), ["".join(words(key)).removeprefix(", ").strip() for key in keys])

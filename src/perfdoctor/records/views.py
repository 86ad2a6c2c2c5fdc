"""What do the pages of a report show besides the diagnosis? Tables, charts and tracks, ready to be drawn.

`views/` fills them from a recording; a report draws them and computes nothing. All times are ns since the first event
of the analysed window, as in a finding's `Span`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, field

from perfdoctor.model.columns import Floats, Ints

#: The unit of a number; only reports round. `number` has no unit, `position` counts from 0 and must not be summed.
Unit = Literal[
    "text", "count", "number", "position", "share", "ns", "bytes", "bytes_per_second", "flop", "flop_per_second",
    "flop_per_byte", "watt", "celsius", "hertz",
]  # fmt: skip


class TableColumn(Struct, frozen=True):
    """One column of a table. `values`: numbers (NaN or None: unknown), or texts where `unit` is text.

    `adds_up`: is the sum over rows meaningful? (It is for times, not for means.)
    """

    name: str
    unit: Unit
    values: Sequence[int | float | str | None]
    explained: str = ""
    adds_up: bool = False


class Table(Struct, frozen=True):
    """A table, costliest rows first. `rows_in_all`: the number of rows before the cheapest were omitted.

    `id` names it in files and addresses; `explained` says in a sentence what is counted.
    """

    page: str
    id: str
    title: str
    columns: tuple[TableColumn, ...]
    rows_in_all: int
    explained: str = ""


class Axis(Struct, frozen=True):
    label: str
    unit: Unit
    logarithmic: bool = False


class Series(Struct, frozen=True):
    """One line, or one kind of mark. `labels`: the name of each point; none, or one a point.

    steps: each value holds until the next point. area, bars: stacked on the areas or bars before. guide: a line to
    compare with (a ceiling, a limit). spans: from each x to its y, on the axis of x. marks: a remark at each point, its
    label. `weight`: the area of each dot relative to the largest; none, or one a point. `part`: the part of the step
    (`compute`, a cause of idle, …) or the kind of memory, which has the same colour everywhere; "" for anything else.
    """

    name: str
    kind: Literal["line", "steps", "area", "bars", "dots", "guide", "spans", "marks"]
    x: Floats
    y: Floats
    labels: tuple[str, ...] = ()
    weight: Floats = field(default_factory=lambda: np.empty(0))
    part: str = ""


class Chart(Struct, frozen=True):
    """A chart with two axes.

    `description`: what it shows in a sentence, also for screen readers; `{name}` stands for one of `numbers`, each with
    its unit. Text from a recording is only in `numbers`.
    """

    page: str
    id: str
    title: str
    description: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    numbers: Mapping[str, tuple[float | str, Unit]] = field(default_factory=dict)


class Heat(Struct, frozen=True):
    """A heat map, a row a rank: `values[row, column]`, NaN where unknown, all of one unit.

    `description` and `numbers`: as in a chart.
    """

    page: str
    id: str
    title: str
    description: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    unit: Unit
    numbers: Mapping[str, tuple[float | str, Unit]] = field(default_factory=dict)


class Node(Struct, frozen=True):
    """A part of a whole, and the parts inside it. `value`: with all of them, which may leave a rest.

    `is_muted`: it is not what the picture is about, and has no colour.
    """

    name: str
    value: float
    children: tuple[Node, ...] = ()
    is_muted: bool = False


class Icicle(Struct, frozen=True):
    """A flame graph that hangs down: each node as wide as its share of the root, its children below it.

    `explained` says in a sentence what is counted.
    """

    page: str
    id: str
    title: str
    unit: Unit
    root: Node
    explained: str = ""


class Track(Struct, frozen=True):
    """What one stream, thread or device did, as pieces sorted by start. Arrays have one element a piece.

    A piece is one event, or several short ones merged (`count` > 1), in which case `busy_ns` is their summed duration.
    `kind`: a signal's name, or step, idle or counter. `row`: depth of nesting, 0 is outermost. `launch_track`,
    `launch_ns`: where and when the host launched it (-1: unknown). `name`, `detail`: indices into `TimelineView.names`
    (detail -1: none). In a counter, `values` are its numbers from `start_ns` on, the highest of merged events.
    """

    group: int
    kind: str
    title: str
    start_ns: Ints
    duration_ns: Ints
    name: Ints
    row: Ints
    count: Ints
    busy_ns: Ints
    launch_track: Ints
    launch_ns: Ints
    detail: Ints
    values: Floats = field(default_factory=lambda: np.empty(0))
    unit: Unit = "count"


class TrackGroup(Struct, frozen=True):
    """The tracks of one rank's device, or of one rank's host."""

    title: str
    rank: int
    device: int | None


class TimelineView(Struct, frozen=True):
    """The timeline of the window. `whole`: time spans in which no events are merged.

    `typical` is the step that is shown first. `pieces_in_all`: the number of events before short ones were merged.
    """

    length_ns: int
    typical: tuple[int, int]
    whole: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    groups: tuple[TrackGroup, ...]
    tracks: tuple[Track, ...]
    pieces_in_all: int


class Views(Struct, frozen=True):
    """All that a report may draw. `failed`: pages that could not be made, each with what was raised."""

    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    heats: tuple[Heat, ...] = ()
    icicles: tuple[Icicle, ...] = ()
    timeline: TimelineView | None = None
    failed: tuple[tuple[str, str], ...] = ()

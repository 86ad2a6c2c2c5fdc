"""What do the pages of a report show beside the diagnosis? Tables, charts and tracks, ready to be drawn.

`viewing/` fills them from a recording; a report draws them and computes nothing. All times are ns since the first
event of the window looked at, the same zero as that of a finding's `Span`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from perfdoctor.model.columns import Floats, Ints

#: What a number is; only reports round. `number` has no unit, `position` counts from 0 and is not to be added up.
Unit = Literal[
    "text", "count", "number", "position", "share", "ns", "bytes", "bytes_per_second", "flop", "flop_per_second",
    "flop_per_byte", "watt", "celsius", "hertz",
]  # fmt: skip


@dataclass(frozen=True)
class TableColumn:
    """One column of a table. `values`: numbers (NaN or None: not known), or texts where `unit` is text.

    `adds_up`: does the sum over rows mean anything? (That of times does, that of means does not.)
    """

    name: str
    unit: Unit
    values: Sequence[int | float | str | None]
    explained: str = ""
    adds_up: bool = False


@dataclass(frozen=True)
class Table:
    """Numbers by row, those that cost most first. `rows_in_all`: how many there were before the shortest were left out.

    `id` names it in files and addresses; `explained` says in a sentence what is counted.
    """

    page: str
    id: str
    title: str
    columns: tuple[TableColumn, ...]
    rows_in_all: int
    explained: str = ""


@dataclass(frozen=True)
class Axis:
    label: str
    unit: Unit
    logarithmic: bool = False


@dataclass(frozen=True)
class Series:
    """One line, or one kind of mark. `labels`: what each point is called; none, or one a point.

    steps: holds its value until the next point. area, bars: stacked upon the areas or bars before it. guide: a line to
    compare with (a ceiling, a limit). stretches: from each x to its y, on the axis of x. marks: a remark at each point,
    its label. `weight`: how large each dot is, as a share of the largest; none, or one a point. `part`: the part of the
    step it is (`compute`, a cause of idle, …), or the kind of memory, which has a colour of its own everywhere; "" for
    anything else.
    """

    name: str
    kind: Literal["line", "steps", "area", "bars", "dots", "guide", "stretches", "marks"]
    x: Floats
    y: Floats
    labels: tuple[str, ...] = ()
    weight: Floats = field(default_factory=lambda: np.empty(0))
    part: str = ""


@dataclass(frozen=True)
class Chart:
    """A picture with two axes.

    `told`: what it shows, in a sentence for those who do not see it; `{name}` stands for one of `numbers`, each with
    its unit. Foreign text is in `numbers` only.
    """

    page: str
    id: str
    title: str
    told: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    numbers: Mapping[str, tuple[float | str, Unit]] = field(default_factory=dict)


@dataclass(frozen=True)
class Heat:
    """A map of numbers, a row a rank: `values[row, column]`, NaN where not known, all of one unit.

    `told` and `numbers`: as those of a chart.
    """

    page: str
    id: str
    title: str
    told: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    unit: Unit
    numbers: Mapping[str, tuple[float | str, Unit]] = field(default_factory=dict)


@dataclass(frozen=True)
class Track:
    """What one stream, thread or device did: pieces sorted by start. Arrays have one element a piece.

    `kind`: a signal's name, or step, idle or counter. `row`: depth of nesting, 0 is outermost. `count` > 1: so many
    short pieces drawn as one, of which `busy_ns` was taken. `launch_track`, `launch_ns`: where and when the host
    launched it (-1: not known). `name`, `detail`: places in `TimelineView.names` (detail -1: nothing to add). Of a
    counter, `values` are its numbers from `start_ns` on, of a joined piece the highest.
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


@dataclass(frozen=True)
class TrackGroup:
    """Tracks that belong together: one rank's device, or one rank's host."""

    title: str
    rank: int
    device: int | None


@dataclass(frozen=True)
class TimelineView:
    """The window, piece by piece. `whole`: stretches in which nothing is drawn together with its neighbours.

    `typical` is the step to begin with. `pieces_in_all`: how many there were before short ones were drawn together.
    """

    length_ns: int
    typical: tuple[int, int]
    whole: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    groups: tuple[TrackGroup, ...]
    tracks: tuple[Track, ...]
    pieces_in_all: int


@dataclass(frozen=True)
class Views:
    """All that a report may draw. `failed`: the pages that could not be made, each with what was raised."""

    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    heats: tuple[Heat, ...] = ()
    timeline: TimelineView | None = None
    failed: tuple[tuple[str, str], ...] = ()

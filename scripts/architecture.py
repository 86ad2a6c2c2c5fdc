"""Which room imports which? docs/architecture.md and its picture, from the imports themselves."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

_ROOT = Path(__file__).parents[1]
_PACKAGE = "perfdoctor"
Edges = Mapping[str, frozenset[str]]
#: A place in the picture: its row from the bottom, and a room, or the import of two rooms that passes the row.
Spot = tuple[int, str]

_ROW, _BOX, _HIGH, _PASSING, _GAP, _MARGIN = 62, 104, 30, 12, 18, 12
_SWEEPS = 40
_STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1a202c }
  rect { fill: #edf2f7; stroke: #4a5568 }
  path { fill: none; stroke: #718096; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #edf2f7 } rect { fill: #2d3748; stroke: #a0aec0 } path { stroke: #a0aec0 }
  }
"""
_TEXT = """# Architecture

<!-- `make docs` writes this page and its picture from the imports of the program. -->

The program is made of rooms, which are the folders of `src/perfdoctor/`. Each answers one question. A recording goes in
at `readers`, a diagnosis comes out of `diagnosis`, and no room imports from a later one: import-linter proves it
(`make lint`). [How it works](how-it-works.md) says what the program does.

![The rooms, each above those that it imports](pictures/architecture.svg)

A line leads from a room down to one that it imports. Imports that follow from others are left out of the picture; the
table has all of them, also those that happen only when a function is called.

| room | question it answers | imports |
| --- | --- | --- |
"""


def imports() -> Edges:
    """Each room, a folder of the package, with the rooms that its modules import when they run."""
    import grimp  # noqa: PLC0415 only whoever writes the page needs it

    graph = grimp.build_graph(_PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    rooms = sorted(child for child in graph.find_children(_PACKAGE) if graph.find_children(child))

    def direct(importer: str, imported: str) -> bool:
        return importer != imported and graph.direct_import_exists(
            importer=importer, imported=imported, as_packages=True
        )

    return {_short(room): frozenset(_short(other) for other in rooms if direct(room, other)) for room in rooms}


def _short(module: str) -> str:
    return module.removeprefix(f"{_PACKAGE}.")


def reached(edges: Edges, room: str) -> frozenset[str]:
    """All rooms that this one imports, directly or through others."""
    return edges[room].union(*(reached(edges, other) for other in edges[room]))


def essential(edges: Edges) -> dict[str, list[str]]:
    """The imports that do not follow from others: without those of rooms that another imported room reaches."""
    return {
        room: sorted(other for other in own if not any(other in reached(edges, third) for third in own))
        for room, own in edges.items()
    }


def questions() -> dict[str, str]:
    """The question that each room answers, from the table in CONTRIBUTING.md."""
    text = (_ROOT / "CONTRIBUTING.md").read_text("utf-8")
    found = {}
    for names, question in re.findall(r"^\| (`\w+/`.*?) \| (.*) \|$", text, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`(\w+)/`", names), question)
    return found


def page() -> str:
    """The whole of docs/architecture.md."""
    edges, asked = imports(), questions()
    rows = [
        f"| `{room}` | {asked[room]} | {', '.join(f'`{other}`' for other in sorted(edges[room])) or 'none'} |"
        for room in sorted(edges, key=lambda each: (-_height(edges, each), each))
    ]
    return f"{_TEXT}{chr(10).join(rows)}\n"


# --- the picture ---


def _height(edges: Edges, room: str) -> int:
    """The longest way down from a room."""
    return 1 + max((_height(edges, other) for other in edges[room]), default=-1)


def _ways(edges: Edges) -> list[list[Spot]]:
    """Each essential import as the spots that it passes, from the importer down."""
    height = {room: _height(edges, room) for room in edges}
    return [
        [(height[room], room), *((row, f"{room} {other}") for row in range(height[room] - 1, height[other], -1)),
         (height[other], other)]
        for room, others in essential(edges).items()
        for other in others
    ]  # fmt: skip


def _placed(ways: list[list[Spot]]) -> dict[Spot, float]:
    """The middle of each spot: near the spots that it is joined with, and apart from its neighbours in the row."""
    joined: dict[Spot, list[Spot]] = {}
    for way in ways:
        for upper, lower in itertools.pairwise(way):
            joined.setdefault(upper, []).append(lower)
            joined.setdefault(lower, []).append(upper)
    rows = [sorted(spot for spot in joined if spot[0] == row) for row in range(1 + max(row for row, _ in joined))]
    at = {spot: (place - (len(row) - 1) / 2) * (_BOX + _GAP) for row in rows for place, spot in enumerate(row)}
    for _ in range(_SWEEPS):
        for row in (*rows, *reversed(rows)):
            wanted = {spot: fmean(at[other] for other in joined[spot]) for spot in row}
            row.sort(key=lambda spot: (wanted[spot], spot))
            at |= _apart(row, wanted)
    return at


def _apart(row: list[Spot], wanted: Mapping[Spot, float]) -> dict[Spot, float]:
    """The spots of a row in their order, as near to where they belong as their widths allow."""

    def width(spot: Spot) -> int:
        return _PASSING if " " in spot[1] else _BOX

    def pushed(spots: list[Spot], sign: int) -> list[float]:
        found: list[float] = []
        for number, spot in enumerate(spots):
            least = found[-1] + (width(spots[number - 1]) + width(spot)) / 2 + _GAP if number else -1e9
            found.append(max(sign * wanted[spot], least))
        return found

    left, right = pushed(row, 1), [-each for each in reversed(pushed(row[::-1], -1))]
    return {spot: (low + high) / 2 for spot, low, high in zip(row, left, right, strict=True)}


def picture() -> str:
    """The picture as SVG."""
    edges = imports()
    ways = _ways(edges)
    at = _placed(ways)
    left, top = min(at.values()) - _BOX / 2 - _MARGIN, max(row for row, _ in at)
    wide, high = max(at.values()) + _BOX / 2 + _MARGIN - left, top * _ROW + _HIGH + 2 * _MARGIN

    def place(spot: Spot) -> tuple[float, float]:
        return at[spot] - left, (top - spot[0]) * _ROW + _HIGH / 2 + _MARGIN

    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" role="img">',
        "<title>The rooms of perfdoctor, each above those that it imports</title>", f"<style>{_STYLE}</style>",
        *(f'<path d="{_line([place(spot) for spot in way])}"/>' for way in ways),
        *_boxes({spot[1]: place(spot) for spot in sorted(at) if " " not in spot[1]}), "</svg>", "",
    ])  # fmt: skip


def _line(points: list[tuple[float, float]]) -> str:
    """A smooth line from the lower edge of the first box through all points to the upper edge of the last."""
    ends = [(points[0][0], points[0][1] + _HIGH / 2), *points[1:-1], (points[-1][0], points[-1][1] - _HIGH / 2)]
    parts = [f"M{ends[0][0]:.0f} {ends[0][1]:.0f}"]
    for (x, y), (to_x, to_y) in itertools.pairwise(ends):
        half = (y + to_y) / 2
        parts.append(f"C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}")
    return " ".join(parts)


def _boxes(places: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    for room, (x, y) in places.items():
        yield f'<rect x="{x - _BOX / 2:.0f}" y="{y - _HIGH / 2:.0f}" width="{_BOX}" height="{_HIGH}" rx="5"/>'
        yield f'<text x="{x:.0f}" y="{y + 5:.0f}">{room}</text>'

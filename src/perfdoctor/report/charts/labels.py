"""Which marks get a label, so that no label covers another?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

#: The size of plot for which labels are placed: narrower pages show none.
_PLOT_PX = (860.0, 340.0)
_LETTER_PX, _LINE_PX = 6.3, 13.0
#: At most this many labels of dots; the table has all names.
_MOST = 8


class Dot(Struct, frozen=True):
    """A dot: its place as shares of the plot from the left and the top, its radius and its name."""

    x: float
    y: float
    radius_px: float
    name: str


class Label(Struct, frozen=True):
    """A name at a dot's place; `anchor` and the offsets in pixels are those of an SVG text."""

    x: float
    y: float
    dx: float
    dy: float
    anchor: str
    name: str


class _Box(Struct, frozen=True):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def placed(dots: Iterable[Dot]) -> list[Label]:
    """Labels for the first dots, as many as fit: to the right, to the left, above or below."""
    every = list(dots)
    wide, high = _PLOT_PX
    taken = [
        _Box(dot.x * wide - dot.radius_px, dot.y * high - dot.radius_px,
             dot.x * wide + dot.radius_px, dot.y * high + dot.radius_px)
        for dot in every
    ]  # fmt: skip
    found: list[Label] = []
    for dot in every:
        if len(found) == _MOST:
            break
        for label, box in _choices(dot):
            inside = box.left >= 0 and box.top >= 0 and box.right <= wide and box.bottom <= high
            if dot.name and inside and not any(box.meets(other) for other in taken):
                found.append(label)
                taken.append(box)
                break
    return found


def _choices(dot: Dot) -> Iterator[tuple[Label, _Box]]:
    """The labels that a dot may have, best first, each with the box that it covers."""
    x, y, away = dot.x * _PLOT_PX[0], dot.y * _PLOT_PX[1], dot.radius_px + 4
    wide, half = _LETTER_PX * len(dot.name), _LINE_PX / 2
    for dx, dy, anchor, left, middle in (
        (away, 4.0, "start", x + away, y),
        (-away, 4.0, "end", x - away - wide, y),
        (0.0, -away, "middle", x - wide / 2, y - away - 4),
        (0.0, away + 9, "middle", x - wide / 2, y + away + 4),
    ):
        yield Label(dot.x, dot.y, dx, dy, anchor, dot.name), _Box(left, middle - half, left + wide, middle + half)

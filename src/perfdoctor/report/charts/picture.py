"""What is on a chart? Everything that its template prints, computed from the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from jinja2 import Template
from markupsafe import Markup
from msgspec import Struct, field

from perfdoctor.records.views import Chart, Series
from perfdoctor.report import templates
from perfdoctor.report.charts import axes, labels, marks, words
from perfdoctor.report.charts.marks import HEIGHT, WIDTH, percent
from perfdoctor.report.words.foreign_text import clean_name

_STACKED = ("area", "bars")
_BESIDE_X = ("spans",)
#: The number of different colours; further lines differ in their dashes.
_COLOURS, _DASHES = 6, 4
_MOST_TICKS = 6
#: More bars than these are too narrow for tooltips of their own.
_MOST_TOOLTIPS = 130
_SHAPES = ("round", "square", "diamond")
#: The length of a label in characters.
_SHORT_NAME = 30
#: Guides closer together than this share of the height have their names only in the legend.
_NAME_ROOM = 0.045
#: Labels of guides end here, so that the frame does not cut them.
_AT_THE_END = 0.97


class Mark(Struct, frozen=True):
    """One SVG element of this `kind`: a `path`, or a place (and size) in percent."""

    kind: str
    css: str
    tooltip: str
    path: str = ""
    x: str = ""
    y: str = ""
    width: str = ""
    height: str = ""
    radius: float = 0.0


class LegendLine(Struct, frozen=True):
    css: str
    kind: str
    name: str


class Drawing(Struct, frozen=True):
    """All that the template needs. Ticks: (place in percent, label); labels of marks: places in shares."""

    chart: Chart
    description: str
    x_ticks: Sequence[tuple[str, str, str]]
    y_ticks: Sequence[tuple[str, str]]
    paths: Sequence[Mark]
    points: Sequence[Mark]
    guide_names: Sequence[labels.Label]
    dot_names: Sequence[labels.Label]
    legend: Sequence[LegendLine]
    numbers: Sequence[Sequence[str]] = field(default_factory=tuple)


def chart(picture: Chart) -> Markup:
    """The chart as a `figure`, its texts escaped."""
    page = template("chart.html.j2").render(d=drawing(picture), percent=percent, WIDTH=WIDTH, HEIGHT=HEIGHT)
    return Markup(page)  # noqa: S704 escaped by the template


def drawing(picture: Chart) -> Drawing:
    """Compute everything that the template prints."""
    frame, css = _frame(picture), _classes(picture.series)
    paths: list[Mark] = []
    for series in picture.series:
        if series.kind in ("line", "steps", "guide"):
            path = marks.line(series, frame, in_steps=series.kind == "steps")
            paths.append(Mark(series.kind, css[id(series)], _span_tooltip(series, picture), path=path))
    for kind in _STACKED:
        paths[:0] = _stack([each for each in picture.series if each.kind == kind], picture, frame, css)
    return Drawing(
        chart=picture,
        description=words.description(picture),
        x_ticks=[
            (percent(at), label, "end" if at >= _AT_THE_END else "middle") for at, label in frame.x.ticks(_MOST_TICKS)
        ],
        y_ticks=[(percent(1 - at), label) for at, label in frame.y.ticks(_MOST_TICKS)],
        paths=[mark for mark in paths if mark.path],
        points=[
            *_hits(picture, frame),
            *_dots(picture, frame, css),
            *_spans(picture, frame, css),
            *_remarks(picture, frame),
        ],
        guide_names=_guide_names(picture, frame),
        dot_names=labels.placed(_named_dots(picture, frame)),
        legend=_legend(picture, css),
        numbers=_numbers(picture),
    )


@lru_cache(maxsize=2)
def template(name: str) -> Template:
    return templates.environment().get_template(name)


def _frame(picture: Chart) -> marks.PlotArea:
    standing = [each for each in picture.series if each.kind not in _BESIDE_X]
    x_values = [each.x for each in standing] + [each.y for each in picture.series if each.kind in _BESIDE_X]
    bars = [each for each in picture.series if each.kind == "bars"]
    if bars:
        half = marks.bar_width(bars) / 2
        x_values += [each.x + sign * half for each in bars for sign in (-1, 1)]
    heights = [each.y for each in standing if each.kind not in (*_STACKED, "marks")]
    for kind in _STACKED:
        heights += [high for _, _, high in marks.stacked([each for each in standing if each.kind == kind])]
    return marks.PlotArea(
        axes.scale(picture.x, x_values, from_zero=False),
        axes.scale(picture.y, heights, from_zero=True, to_round=True),
    )


def _classes(series: Sequence[Series]) -> dict[int, str]:
    """The CSS classes of each series by its identity: parts of the step have their own colour, others one by number.

    Lines over a stack have the colour of text, which no part has; guides are dashed where there are such lines.
    """
    found: dict[int, str] = {}
    is_stack = any(each.kind in _STACKED for each in series)
    over = [each for each in series if is_stack and each.kind in ("line", "steps")]
    number, guide = 0, len(over)
    for each in series:
        if each.part:
            found[id(each)] = f"k-{each.part}"
        elif each.kind == "guide":
            found[id(each)] = f"k-guide d{guide % _DASHES}"
            guide += 1
        elif any(each is line for line in over):
            found[id(each)] = f"k-over d{next(n for n, line in enumerate(over) if line is each) % _DASHES}"
        else:
            found[id(each)] = f"k{number % _COLOURS} d{number // _COLOURS % _DASHES}"
            number += 1
    return found


def _stack(series: Sequence[Series], picture: Chart, frame: marks.PlotArea, css: dict[int, str]) -> Iterator[Mark]:
    width = marks.bar_width(series)
    for each, low, high in marks.stacked(series):
        is_bar = each.kind == "bars"
        path = marks.bars(each.x, low, high, width, frame) if is_bar else marks.between(each.x, low, high, frame)
        yield Mark(each.kind, css[id(each)], _span_tooltip(each, picture), path=path)


def _hits(picture: Chart, frame: marks.PlotArea) -> Iterator[Mark]:
    """An invisible box over each bar of the picture, with a tooltip of all its parts."""
    bars = [each for each in picture.series if each.kind == "bars"]
    if not bars or bars[0].x.size > _MOST_TOOLTIPS:
        return
    width = marks.bar_width(bars)
    left, right = frame.x.at(bars[0].x - width / 2), frame.x.at(bars[0].x + width / 2)
    for row in range(bars[0].x.size):
        parts = [f"{clean_name(each.name)} {words.said(float(each.y[row]), picture.y.unit)}" for each in bars
                 if row < each.y.size and each.y[row] != 0]  # fmt: skip
        whole = words.said(float(sum(np.nan_to_num(each.y[row]) for each in bars if row < each.y.size)), picture.y.unit)
        name = clean_name(bars[0].labels[row]) if bars[0].labels else words.said(float(bars[0].x[row]), picture.x.unit)
        tooltip = f"{name}: {whole}" + (f" ({', '.join(parts)})" if len(parts) > 1 else "")
        yield Mark("hit", "", tooltip, x=percent(float(left[row])), y="0", height="100%",
                   width=percent(float(right[row] - left[row])))  # fmt: skip


def _dots(picture: Chart, frame: marks.PlotArea, css: dict[int, str]) -> Iterator[Mark]:
    kinds = [each for each in picture.series if each.kind == "dots"]
    for number, series in enumerate(kinds):
        shape = _SHAPES[number % len(_SHAPES)]
        for row, (x, y, radius) in enumerate(_places(series, frame)):
            if np.isfinite(x) and np.isfinite(y):
                name = clean_name(series.labels[row] if series.labels else series.name)
                at = words.said(float(series.x[row]), picture.x.unit)
                tooltip = f"{name}: {words.said(float(series.y[row]), picture.y.unit)} at {at}"
                yield Mark(shape, css[id(series)], tooltip, x=percent(x), y=percent(y), radius=radius)


def _places(series: Series, frame: marks.PlotArea) -> Iterator[tuple[float, float, float]]:
    across, down = frame.x.at(series.x), 1 - frame.y.at(series.y)
    return zip(across.tolist(), down.tolist(), marks.dot_sizes(series), strict=True)


def _named_dots(picture: Chart, frame: marks.PlotArea) -> list[labels.Dot]:
    """The dots with their names, largest first. Text after a comma is only in the tooltip."""
    found = []
    for series in picture.series:
        if series.kind == "dots":
            for row, (x, y, radius) in enumerate(_places(series, frame)):
                if np.isfinite(x) and np.isfinite(y):
                    name = clean_name(series.labels[row].split(", ")[0], _SHORT_NAME) if series.labels else ""
                    found.append(labels.Dot(x, y, radius, name))
    return sorted(found, key=lambda dot: -dot.radius_px)


def _spans(picture: Chart, frame: marks.PlotArea, css: dict[int, str]) -> Iterator[Mark]:
    """The spans, each kind in its own lane below the upper edge."""
    kinds = [each for each in picture.series if each.kind == "spans"]
    for lane, series in enumerate(kinds):
        starts, ends = frame.x.at(series.x), frame.x.at(series.y)
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            begin, until = (words.said(float(each[row]), picture.x.unit) for each in (series.x, series.y))
            yield Mark("span", css[id(series)], f"{clean_name(series.name)}: {begin} to {until}", x=percent(start),
                       y=percent(lane * marks.LANE), width=percent(max(end - start, 0.001)),
                       height=percent(marks.LANE * 0.75))  # fmt: skip


def _remarks(picture: Chart, frame: marks.PlotArea) -> Iterator[Mark]:
    for series in picture.series:
        if series.kind == "marks":
            for row, (x, y) in enumerate(zip(frame.x.at(series.x), frame.y.at(series.y), strict=True)):
                if np.isfinite(x) and np.isfinite(y):
                    tooltip = clean_name(series.labels[row], 200) if series.labels else clean_name(series.name)
                    yield Mark("remark", "", tooltip, x=percent(float(x)), y=percent(float(1 - y)))


def _guide_names(picture: Chart, frame: marks.PlotArea) -> list[labels.Label]:
    """Names at the right end of guides that reach it and have room there; charts with dots have only the legend."""
    found: list[labels.Label] = []
    if any(series.kind == "dots" for series in picture.series):
        return found
    for series in picture.series:
        if series.kind != "guide" or not series.x.size:
            continue
        x, y = float(frame.x.at(series.x)[-1]), float(1 - frame.y.at(series.y)[-1])
        if x >= _AT_THE_END and 0 <= y <= 1 and all(abs(y - other.y) > _NAME_ROOM for other in found):
            found.append(labels.Label(1.0, y, -4, -5 if y > _NAME_ROOM else 13, "end", _guide_name(series, picture)))
    return found


def _guide_name(series: Series, picture: Chart) -> str:
    """The name of a guide, with its height if it is level."""
    known = series.y[np.isfinite(series.y)]
    is_level = known.size and (known == known[0]).all()
    height = f" {words.said(float(known[0]), picture.y.unit)}" if is_level else ""
    return f"{clean_name(series.name, _SHORT_NAME)}{height}"


def _legend(picture: Chart, css: dict[int, str]) -> list[LegendLine]:
    """Stacked series from top to bottom, then the others; none for a chart of one series."""
    stacked = [each for each in picture.series if each.kind in _STACKED]
    others = [each for each in picture.series if each.kind not in _STACKED]
    if len(picture.series) < 2:
        return []
    shapes = iter(_SHAPES * len(others))
    lines = []
    for each in (*reversed(stacked), *others):
        kind = next(shapes) if each.kind == "dots" else each.kind
        name = _guide_name(each, picture) if each.kind == "guide" else clean_name(each.name)
        lines.append(LegendLine(css[id(each)], kind, name))
    return lines


def _span_tooltip(series: Series, picture: Chart) -> str:
    """A line or area in words: its name, its lowest and its highest number."""
    known = series.y[np.isfinite(series.y)]
    if not known.size:
        return clean_name(series.name)
    low, high = (words.said(float(each), picture.y.unit) for each in (known.min(), known.max()))
    return f"{clean_name(series.name)}: {low}" + (f" to {high}" if low != high else "")


def _numbers(picture: Chart) -> list[list[str]]:
    """Name, first, lowest, highest and last number of each line and area. Bars have a table of their own."""
    rows: list[list[str]] = []
    if any(each.kind == "bars" for each in picture.series):
        return rows
    for series in picture.series:
        known = series.y[np.isfinite(series.y)]
        if series.kind in ("line", "steps", "area") and known.size:
            shown = (known[0], known.min(), known.max(), known[-1])
            rows.append([clean_name(series.name), *(words.said(float(each), picture.y.unit) for each in shown)])
    return rows

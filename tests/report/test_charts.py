"""Are a chart's numbers in the right places, and its texts well-formed and escaped?"""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest
from msgspec.structs import replace
from report.samples import POISON
from tables import of_each

from perfdoctor.records.views import Axis, Chart, Heat, Series
from perfdoctor.report import charts
from perfdoctor.report.charts import labels, words
from perfdoctor.report.charts.axes import scale
from perfdoctor.report.charts.heat import span
from perfdoctor.report.charts.marks import HEIGHT, WIDTH
from perfdoctor.report.words import wording

TAGS = {
    "figure", "figcaption", "p", "ul", "li", "svg", "title", "desc", "g", "line", "text", "path", "rect", "circle",
    "details", "summary", "div", "table", "thead", "tbody", "tr", "th", "td", "span",
}  # fmt: skip
NS = Axis("time", "ns")
NUMBER = Axis("step", "position")
INTENSITY, RATE = Axis("intensity", "flop_per_byte", True), Axis("rate", "flop_per_second", True)
_KIB = 1024


def series(kind, x, y, **more):
    return Series(more.pop("name", kind), kind, np.asarray(x, float), np.asarray(y, float), **more)


def chart(*drawn, x=NUMBER, y=NS, description="It is described.", numbers=None):
    return Chart("steps", "an-id", "A title", description, x, y, drawn, numbers or {})


def parsed(picture):
    """The figure as XML: that it can be read at all is half of every test."""
    draw = charts.heat if isinstance(picture, Heat) else charts.chart
    return ET.fromstring(str(draw(picture)))


def plot(figure):
    (found,) = [each for each in figure.iter("svg") if each.get("role") == "img"]
    return found


def marks(figure, css):
    return [each for each in plot(figure).iter() if css in (each.get("class") or "").split()]


def percent(text):
    assert text.endswith("%")
    return float(text[:-1]) / 100


def points(path):
    """Every point of a path of ours, as shares of the plot from its left and bottom, one list a run."""
    runs, at = [], (0, 0)
    for command, numbers in re.findall(r"([MlhvHVz])([-\d ]*)", path):
        values = [int(each) for each in re.findall(r"-?\d+", numbers)]
        if command == "M":
            runs.append([])
            at = (values[0], values[1])
            runs[-1].append(at)
        for step in zip(values[::2], values[1::2], strict=True) if command == "l" else ():
            at = (at[0] + step[0], at[1] + step[1])
            runs[-1].append(at)
        if command in "hvHV" and values:
            along = (at[0] + values[0], at[1]) if command == "h" else (at[0], at[1] + values[0])
            at = {"H": (values[0], at[1]), "V": (at[0], values[0])}.get(command, along)
            runs[-1].append(at)
    return [[(x / WIDTH, 1 - y / HEIGHT) for x, y in run] for run in runs]


# --- where marks stand ------------------------------------------------------------------------------------------------


def test_a_line_goes_through_its_points_and_breaks_where_nothing_is_known():
    y = [10, 40, float("nan"), 20, 100]
    (line,) = marks(parsed(chart(series("line", [0, 10, 20, 30, 40], y))), "line")
    first, second = points(line.get("d"))
    assert np.allclose(first, [(0, 0.1), (0.25, 0.4)], atol=1e-3)
    assert np.allclose(second, [(0.75, 0.2), (1, 1)], atol=1e-3)


def test_errors_of_rounding_do_not_add_up():
    rng = np.random.default_rng(7)
    y = rng.uniform(0, 100, 1500)
    y[0] = 100
    (line,) = marks(parsed(chart(series("line", np.arange(1500), y))), "line")
    (run,) = points(line.get("d"))
    assert run[-1] == pytest.approx((1, y[-1] / 100), abs=1 / HEIGHT)
    assert len(run) == 1500
    assert np.abs(np.array([at for _, at in run]) - y / 100).max() <= 0.51 / HEIGHT


def test_steps_hold_their_value_until_the_next_point():
    (line,) = marks(parsed(chart(series("steps", [0, 10, 20], [50, 100, 0]))), "steps")
    (run,) = points(line.get("d"))
    assert np.allclose(run, [(0, 0.5), (0.5, 0.5), (0.5, 1), (1, 1), (1, 0)], atol=1e-3)


def test_bars_are_stacked_and_are_as_high_as_their_numbers():
    low, high = [10, 20, 30], [40, 0, 20]
    figure = parsed(chart(series("bars", [1, 2, 3], low, name="low"), series("bars", [1, 2, 3], high, name="high")))
    below, above = (points(each.get("d")) for each in marks(figure, "bars") if each.get("d").count("M") > 1)
    assert [max(y for _, y in bar) for bar in below] == pytest.approx([0.2, 0.4, 0.6], abs=1e-3)
    ends = [(min(y for _, y in bar), max(y for _, y in bar)) for bar in above]
    assert np.allclose(ends, [(0.2, 1), (0.6, 1)], atol=1e-3)  # the empty one of the middle step is not drawn
    # Three bars, each four fifths of the distance between them wide: 2.8 distances in all.
    middles = [(bar[0][0] + bar[1][0]) / 2 for bar in below]
    assert middles == pytest.approx([0.4 / 2.8, 0.5, 2.4 / 2.8], abs=1e-3)


def test_the_tooltip_of_a_bar_has_its_parts():
    figure = parsed(chart(series("bars", [1, 2], [3e6, 5e6], name="compute", part="compute"),
                          series("bars", [1, 2], [1e6, 0], name="idle: a cause")))  # fmt: skip
    tooltips = [each.find("title").text for each in marks(figure, "hit")]
    assert tooltips == ["1: 4.00 ms (compute 3.00 ms, idle: a cause 1.00 ms)", "2: 5.00 ms"]


def test_dots_of_a_roofline_stand_at_their_logarithms():
    dots = series("dots", [0.5, 20, 300], [2e9, 5e12, 9e13], labels=("a", "b", "c"), weight=np.array([1, 0.25, 0.0]))
    found = marks(parsed(chart(dots, x=INTENSITY, y=RATE)), "dot")
    circles = [each for each in found if each.tag == "circle" and each.get("r")]
    expected = [
        ((math.log10(x) + 1) / 4, 1 - (math.log10(y) - 9) / 5)  # from 0.1 to 1000, from 1 G to 100 T
        for x, y in ((0.5, 2e9), (20, 5e12), (300, 9e13))
    ]
    at = [(percent(each.get("cx")), percent(each.get("cy"))) for each in circles]
    assert np.allclose(at, expected, atol=1e-4)
    areas = [float(each.get("r")) ** 2 for each in circles]
    assert areas[1] / areas[0] == pytest.approx(0.25, abs=0.01)
    assert areas[2] > 0


def test_what_is_not_positive_has_no_place_on_a_logarithmic_axis():
    dots = series("dots", [0, -3, 10], [1e9, 1e9, 1e9], labels=("a", "b", "c"))
    titles = [each.text for each in plot(parsed(chart(dots, x=INTENSITY, y=RATE))).iter("title")]
    assert [title for title in titles if title.endswith("FLOP/B")] == ["c: 1.00 GFLOP/s at 10 FLOP/B"]


def test_guides_that_are_level_say_their_height_at_the_right_end():
    figure = parsed(chart(series("line", [0, 9], [1e6, 9e6]), series("guide", [0, 9], [5e6, 5e6], name="limit")))
    (name,) = marks(figure, "beside")
    assert (name.text, name.get("x"), percent(name.get("y"))) == ("limit 5.00 ms", "100%", pytest.approx(0.5))


def test_spans_lie_in_lanes_at_their_times():
    figure = parsed(chart(series("line", [0, 100], [1, 2]), series("spans", [20], [50], name="held by heat"),
                          series("spans", [0], [10], name="held by power"), x=NS))  # fmt: skip
    heat, power = (each for each in marks(figure, "span") if each.tag == "rect")
    assert (percent(heat.get("x")), percent(heat.get("width"))) == (pytest.approx(0.2), pytest.approx(0.3))
    assert percent(power.get("y")) >= percent(heat.get("y")) + percent(heat.get("height"))
    assert heat.find("title").text == "held by heat: 20 ns to 50 ns"


def test_remarks_point_at_their_numbers():
    remark = series("marks", [2], [100], name="much longer", labels=("step 2: compute grew most",))
    figure = parsed(chart(series("bars", [1, 2], [50, 100]), remark))
    (at,) = [each for each in plot(figure).iter("svg") if each.get("class") == "at"]
    assert percent(at.get("y")) == pytest.approx(0)
    assert at.find("path").find("title").text == "step 2: compute grew most"


# --- axes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "low", "high"),
    [("ns", 0, 7.3e8), ("ns", 0, 3), ("bytes", 0, 5.3 * 2**30), ("share", 0, 0.07), ("watt", 0, 690), ("hertz", 0, 1.98e9),
     ("position", 1, 17), ("position", 1, 2), ("bytes_per_second", 0, 3.3e11), ("celsius", -12, 83), ("number", -1e300, 1e300)],
)  # fmt: skip
def test_ticks_are_evenly_apart_and_say_where_they_are(unit, low, high):
    axis = scale(Axis("", unit), [np.array([low, high], float)], from_zero=False)
    ticks = axis.ticks(6)
    assert 2 <= len(ticks) <= 7
    assert len({label for _, label in ticks}) == len(ticks)
    assert np.ptp(np.diff([at for at, _ in ticks])) < 1e-6
    sizes = {name: size for size, name in words._SCALES.get(unit, ((1, ""),))}
    for at, label in ticks:
        number, _, name = label.partition(" ")
        value = float(number.replace(",", "")) * (sizes[name] if number != "0" else 0)
        assert value == pytest.approx(low + at * (high - low), abs=1e-6 * (high - low))


def test_ticks_of_bytes_are_powers_of_two_and_of_steps_are_whole():
    def labels_of(unit, high):
        return [label for _, label in scale(Axis("", unit), [np.array([0.0, high])], from_zero=True).ticks(6)]

    assert labels_of("bytes", 80 * 2**30) == ["0", "16 GiB", "32 GiB", "48 GiB", "64 GiB", "80 GiB"]
    assert labels_of("position", 3.0) == ["0", "1", "2", "3"]
    assert labels_of("ns", 1e6) == ["0", "0.2 ms", "0.4 ms", "0.6 ms", "0.8 ms", "1.0 ms"]


def test_ticks_of_a_logarithmic_axis_are_powers_of_ten():
    axis = scale(RATE, [np.array([3e8, 7e13])], from_zero=False)
    assert [label for _, label in axis.ticks(6)] == [
        "100 MFLOP/s", "1 GFLOP/s", "10 GFLOP/s", "100 GFLOP/s", "1 TFLOP/s", "10 TFLOP/s", "100 TFLOP/s"
    ]  # fmt: skip
    assert np.allclose([at for at, _ in axis.ticks(6)], np.arange(7) / 6)


@of_each("value", [0.5, 0.0731, 12_345, 3.21e6, 8.4e9, 1.5e13])
@of_each("unit", ["ns", "bytes", "bytes_per_second", "flop", "flop_per_second"])
def test_numbers_are_said_as_everywhere_in_the_report(unit, value):
    in_words = {"ns": wording.duration, "bytes": wording.size, "bytes_per_second": wording.rate, "flop": wording.flop,
                "flop_per_second": wording.flop_rate}  # fmt: skip
    assert words.said(value, unit) == in_words[unit](value)
    assert words.said(float("nan"), unit) == wording.NO_NUMBER
    size, name = words.scale_of(value, unit)
    if value >= size:
        assert in_words[unit](value).endswith(name)


# --- pictures that are hard to draw -----------------------------------------------------------------------------------

_NAN = float("nan")
HARD = {
    "nothing": chart(),
    "empty": chart(series("line", [], [])),
    "one point": chart(series("line", [5], [7])),
    "one bar": chart(series("bars", [1], [7])),
    "one dot": chart(series("dots", [3], [7]), x=INTENSITY, y=RATE),
    "equal": chart(series("line", [5, 5, 5], [7, 7, 7])),
    "zero": chart(series("line", [0, 1], [0, 0])),
    "unknown": chart(series("line", [1, 2], [_NAN, _NAN]), series("dots", [_NAN], [1])),
    "negative": chart(series("line", [-5, 5], [-7, 3]), series("bars", [-1, 1], [-2, 2])),
    "huge": chart(series("line", [0, 1e300], [-1e300, 1e300])),
    "endless": chart(series("line", [0, 1, 2], [1, float("inf"), 3])),
    "tiny": chart(series("area", [0, 1e-300], [1e-300, 2e-300])),
    "no light": chart(series("dots", [0], [0]), x=INTENSITY, y=RATE),
    "unequal areas": chart(series("area", [0, 1], [1, 2]), series("area", [0, 1, 2], [1, 2, 3])),
}


@of_each("name", list(HARD))
def test_every_picture_can_be_drawn(name):
    figure = parsed(HARD[name])
    assert {each.tag for each in figure.iter()} <= TAGS
    written = [value for each in figure.iter() for key, value in each.attrib.items() if key not in ("id", "class")]
    assert not any(re.search(r"\b(nan|inf)\b", value, re.IGNORECASE) for value in written)


def test_one_point_is_a_dot_of_the_line_in_the_middle_or_at_the_edge():
    (line,) = marks(parsed(HARD["one point"]), "line")
    ((at, *_),) = points(line.get("d"))
    assert np.allclose(
        at, (0.5, 7 / 8), atol=1e-3
    )  # of 5 alone the axis reaches from 2.5 to 7.5, the other from 0 to 8


@pytest.mark.parametrize("hostile", [POISON, '" onload="alert(1)', "]]><script>", "{0.__class__}{evil}", "k" * 5_000])
def test_text_from_a_trace_stays_text(hostile):
    dots = series("dots", [1, 2], [3, 4], name=hostile, labels=(hostile, hostile))
    bars = series("bars", [1, 2], [3, 4], name=hostile, labels=(hostile, hostile))
    guide = series("guide", [1, 2], [3, 3], name=hostile)
    picture = chart(dots, bars, guide, series("line", [1, 2], [1, 2], name=hostile), description="It is {name}.",
                    numbers={"name": (hostile, "text")})  # fmt: skip
    heat = Heat(
        "ranks", "h", hostile, "{n}", (hostile,), (hostile,), np.ones((1, 1)), "share", {"n": (hostile, "text")}
    )
    for drawn in (replace(picture, title=hostile, x=Axis(hostile, "ns"), y=Axis(hostile, "ns")), heat):
        figure = parsed(drawn)
        assert {each.tag for each in figure.iter()} <= TAGS
        assert not any(key.startswith("on") or key == "href" for each in figure.iter() for key in each.attrib)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\ud800]", "".join(figure.itertext()))
        assert len("".join(figure.itertext())) < 30_000 if hostile.startswith("k") else True


def test_every_picture_has_a_name_and_a_description_for_screen_readers():
    description = "Most is {most}, {share} of it {what}."
    numbers = {"most": (3.2e6, "ns"), "share": (0.25, "share"), "what": ("<compute>", "text")}
    heat = Heat("ranks", "h", "A map", description, ("rank 0",), ("compute",), np.ones((1, 1)), "share", numbers)
    for picture in (chart(series("line", [1, 2], [3, 4]), description=description, numbers=numbers), heat):
        figure = parsed(picture)
        ids = {each.get("id"): each for each in figure.iter() if each.get("id")}
        title, description = (ids[each] for each in plot(figure).get("aria-labelledby").split())
        assert title.text == picture.title
        assert description.text == "Most is 3.20 ms, 25 % of it <compute>."
        assert description.text in [each.text for each in figure.iter("p")]


def test_lines_are_repeated_in_numbers_and_named_in_a_legend():
    figure = parsed(chart(series("line", [1, 2, 3], [3e6, 1e6, 2e6], name="GPU 0"),
                          series("line", [1, 2, 3], [_NAN, 5e6, 5e6], name="GPU 1")))  # fmt: skip
    assert ["".join(each.itertext()).strip() for each in figure.iter("li")] == ["GPU 0", "GPU 1"]
    cells = [[cell.text for cell in row] for row in figure.find(".//tbody")]
    assert cells == [["GPU 0", "3.00 ms", "1.00 ms", "3.00 ms", "2.00 ms"], ["GPU 1", *["5.00 ms"] * 4]]


def test_lines_differ_in_more_than_their_colour():
    drawn = [series("line", [1, 2], [n, n], name=f"GPU {n}") for n in range(12)]
    looks = [each.get("class") for each in marks(parsed(chart(*drawn)), "line") if each.find("title") is not None]
    assert len(set(looks)) == 12


def test_names_beside_dots_do_not_lie_on_each_other_or_leave_the_plot():
    rng = np.random.default_rng(3)
    dots = [labels.Dot(*rng.uniform(0, 1, 2), 6.0, f"kernel {n}" * 2) for n in range(60)]
    found = labels.placed(dots)
    boxes = []
    for label in found:
        wide, x, y = 6.3 * len(label.name), label.x * 860 + label.dx, label.y * 340 + label.dy
        left = {"start": x, "end": x - wide, "middle": x - wide / 2}[label.anchor]
        boxes.append((left, y - 10, left + wide, y + 2))
    assert len(found) > 4
    for (a, b, c, d), (e, f, g, h) in combinations(boxes, 2):
        assert c <= e or g <= a or d <= f or h <= b
    assert all(box[0] >= 0 and box[2] <= 860 for box in boxes)


# --- maps -------------------------------------------------------------------------------------------------------------


def a_map(values, unit="share"):
    rows, columns = np.shape(values)
    names = tuple(f"rank {n}" for n in range(rows)), tuple(f"part {n}" for n in range(columns))
    return Heat("ranks", "m", "A map", "Told.", *names, np.asarray(values, float), unit)


def drawn_levels(figure, shape):
    """Each cell's level as the paths draw it: -1 for none."""
    found = np.full(shape, -2)
    for path in plot(figure).iter("path"):
        css = path.get("class")
        for column, top, length in re.findall(r"M(\d+) (\d+)v(\d+)", path.get("d")):
            rows = slice(int(top), int(top) + int(length))
            assert (found[rows, int(column)] == -2).all()
            found[rows, int(column)] = -1 if css == "hnone" else int(css[1:])
    return found


def test_each_cell_has_the_level_of_its_number():
    rng = np.random.default_rng(5)
    values = rng.uniform(0, 0.8, (37, 6))
    values[3, 4], values[0, 0] = np.nan, 0.8
    expected = [[-1 if math.isnan(v) else min(int(v / 0.8 * 10), 9) for v in row] for row in values.tolist()]
    assert drawn_levels(parsed(a_map(values)), values.shape).tolist() == expected


def test_small_differences_of_times_do_not_look_large():
    values = np.array([[100.0, 100.2], [100.1, 100.0]])
    levels = drawn_levels(parsed(a_map(values, "ns")), (2, 2))
    assert levels.max() - levels.min() <= 1
    wide = drawn_levels(parsed(a_map(np.array([[100.0, 200.0], [150.0, 100.0]]), "ns")), (2, 2))
    assert wide.tolist() == [[0, 9], [5, 0]]


def test_a_cell_says_its_number():
    figure = parsed(a_map([[0.25, 0.5]]))
    written = [each.find("text").text for each in plot(figure).iter("svg") if each.find("text") is not None]
    assert written == ["25 %", "50 %"]
    assert [each.find("title").text for each in marks(figure, "hit")] == [
        "rank 0, part 0: 25 %",
        "rank 0, part 1: 50 %",
    ]


@pytest.mark.parametrize(("rows", "columns"), [(64, 8), (64, 120), (1000, 8)])
def test_maps_of_many_ranks_stay_small_and_readable(rows, columns):
    rng = np.random.default_rng(5)
    values = rng.normal(0.5, 0.02, (rows, columns))
    drawn = str(charts.heat(a_map(values)))
    assert len(drawn) < 60 * _KIB
    figure = ET.fromstring(drawn)
    names = [each.text for each in marks(figure, "grid")[0].iter("text")]
    assert 8 <= len(names) <= 32
    assert len(figure.find(".//p[@class='columns some']") if columns > 12 else names) <= 32
    height = float(re.search(r"height:([\d.]+)px", plot(figure).get("style"))[1])
    assert rows <= height <= 1000


@pytest.mark.parametrize(
    "values", [np.full((3, 2), np.nan), np.zeros((2, 2)), np.full((2, 2), -3.0), [[1e300, -1e300]]]
)
@pytest.mark.parametrize("unit", ["share", "ns"])
def test_maps_without_a_difference_can_be_drawn(values, unit):
    drawn_levels(parsed(a_map(values, unit)), np.shape(values))


@pytest.mark.parametrize(
    ("values", "unit", "ends"),
    [
        ([[0, 0]], "ns", (0, 1)), ([[0, 0]], "share", (0, 1)), ([[np.nan, np.nan]], "ns", (0, 1)), ([[1, 9]], "ns", (1, 9)),
        ([[-9, 0]], "ns", (-9, 0)), ([[-9, -1]], "ns", (-9, -1)),
    ],
)  # fmt: skip
def test_the_palest_and_the_darkest_colour_are_never_of_one_number(values, unit, ends):
    assert span(a_map(values, unit)) == ends


def test_the_scale_says_what_palest_and_fullest_mean():
    low, high = span(a_map([[0.2, 0.6]]))
    assert (low, high) == (0, 0.6)
    figure = parsed(a_map([[0.2, 0.6]]))
    assert [each.text for each in figure.find("p[@class='scale-of-heat']").iter("span")] == ["0", "60 %"]


# --- size -------------------------------------------------------------------------------------------------------------


def test_the_largest_charts_stay_small():
    rng = np.random.default_rng(2)
    twelve = [series("line", np.arange(1500), rng.uniform(0, 1e9, 1500), name=f"GPU {n}") for n in range(12)]
    assert sys.getsizeof(str(charts.chart(chart(*(replace(s, x=s.x[::6], y=s.y[::6]) for s in twelve))))) < 60 * _KIB
    assert len(str(charts.chart(chart(twelve[0])))) < 20 * _KIB
    bars = [series("bars", np.arange(120), rng.uniform(1, 2, 120) * 1e7, name=f"part {n}") for n in range(6)]
    assert len(str(charts.chart(chart(*bars)))) < 60 * _KIB

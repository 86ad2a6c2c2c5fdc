"""How does a number develop in a series: from run to run of the history, and with more GPUs?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from perfdoctor.records.views import Axis, Chart, Series

if TYPE_CHECKING:
    from perfdoctor.comparison.scaling.records import ScalingResult
    from perfdoctor.history.series import Trend
    from perfdoctor.model.columns import Floats


def trend_chart(trend: Trend) -> Chart:
    """Draw each run as a dot, each level as a line, each change of the level as a mark. Runs count from 1."""
    values = np.array([point.value for point in trend.points], dtype=np.float64)
    runs = np.arange(1, values.size + 1, dtype=np.float64)
    unit = trend.metric.unit
    return Chart(
        "trend", "trend", trend.metric.label, "{count} runs, {low} to {high}, the last {last}.",
        Axis("run, oldest first", "position"), Axis(trend.metric.label, unit),
        (Series("run", "dots", runs, values), *(_changes(trend, runs, values) if trend.changes else ())),
        {"count": (values.size, "count"), "low": (float(values.min()), unit), "high": (float(values.max()), unit),
         "last": (float(values[-1]), unit)},
    )  # fmt: skip


def _changes(trend: Trend, runs: Floats, values: Floats) -> Iterator[Series]:
    """Draw the levels between changes, and a mark at the first run after each change."""
    at = [each.change.at for each in trend.changes]
    bounds = [0, *at, runs.size]
    heights = [trend.changes[0].change.before, *(each.change.after for each in trend.changes)]
    for number, (start, end, height) in enumerate(zip(bounds, bounds[1:], heights, strict=False), 1):
        yield Series(f"level {number}", "guide", np.array([runs[start], runs[end - 1]]), np.full(2, height))
    labels = tuple(f"{'worse' if each.is_worse else 'better'} from {each.first.run} on" for each in trend.changes)
    yield Series("change of the level", "marks", runs[at], values[at], labels)


def throughput_chart(scaling: ScalingResult) -> Chart | None:
    """Draw the throughput next to what the number of GPUs alone would bring; None if the work of a step is unknown."""
    if any(np.isnan(each.throughput) for each in scaling.rungs):
        return None
    ranks = np.array([each.ranks for each in scaling.rungs], np.float64)
    reached = np.array([each.throughput for each in scaling.rungs])
    ideal = reached[0] * ranks / ranks[0]
    many = "ranks" if scaling.without_gpu else "GPUs"
    ahead = [
        Series(f"predicted: {each.by}", "dots", np.array([float(each.ranks)]), np.array([each.throughput]))
        for each in scaling.ahead
    ]
    ends = np.array([ranks[0], max([ranks[-1], *(float(each.ranks) for each in scaling.ahead)])])
    counted = "items" if scaling.counted == "items" else "steps"
    return Chart(
        "scaling", "throughput", f"Throughput over {many}",
        "From {first} on the fewest to {last} on the most, where their number alone would bring {ideal}.",
        Axis(many, "count"), Axis(f"{counted} a second", "number"),
        (
            Series("measured", "line", ranks, reached),
            Series("a number that was recorded", "dots", ranks, reached, part="compute"),
            Series("ideal", "guide", ends, reached[0] * ends / ranks[0]),
            *ahead,
        ),
        {name: (float(value), "number") for name, value in
         (("first", reached[0]), ("last", reached[-1]), ("ideal", ideal[-1]))},
    )  # fmt: skip

"""How did one number develop from run to run? The chart of a series of the history."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfdoctor.history.series import Trend
from perfdoctor.records.views import Axis, Chart, Series


def chart(trend: Trend) -> Chart:
    """Each run a dot, each level a line, each change of the level a mark. Runs count from 1."""
    values = np.array([point.value for point in trend.points], dtype=np.float64)
    runs = np.arange(1, values.size + 1, dtype=np.float64)
    unit = trend.metric.unit
    text = "{count} runs, {low} to {high}, the last {last}."
    return Chart(
        "trend", "trend", trend.metric.label, text,
        Axis("run, oldest first", "position"), Axis(trend.metric.label, unit),
        (
            Series("run", "dots", runs, values),
            *_levels(trend, runs),
            *_marks(trend, runs, values),
        ),
        {"count": (values.size, "count"), "low": (float(values.min()), unit), "high": (float(values.max()), unit),
         "last": (float(values[-1]), unit)},
    )  # fmt: skip


def _levels(trend: Trend, runs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Iterator[Series]:
    if not trend.changes:
        return
    bounds = [0, *(each.change.at for each in trend.changes), runs.size]
    heights = [trend.changes[0].change.before, *(each.change.after for each in trend.changes)]
    for number, (start, end, height) in enumerate(zip(bounds, bounds[1:], heights, strict=False), 1):
        yield Series(f"level {number}", "guide", np.array([runs[start], runs[end - 1]]), np.full(2, height))


def _marks(
    trend: Trend,
    runs: np.ndarray[tuple[int], np.dtype[np.float64]],
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> Iterator[Series]:
    if trend.changes:
        at = np.array([each.change.at for each in trend.changes])
        labels = tuple(f"{'worse' if each.is_worse else 'better'} from {each.first.run} on" for each in trend.changes)
        yield Series("change of the level", "marks", runs[at], values[at], labels)

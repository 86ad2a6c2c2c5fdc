"""What do more GPUs bring? The chart of a series: throughput, next to what their number alone would bring."""

from __future__ import annotations

import numpy as np

from perfdoctor.comparison.scaling.records import ScalingResult
from perfdoctor.records.views import Axis, Chart, Series


def throughput_chart(scaling: ScalingResult) -> Chart | None:
    """Draw the throughput of the series; None if it is unknown how much a step does."""
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
    furthest = max([ranks[-1], *(float(each.ranks) for each in scaling.ahead)])
    ends = np.array([ranks[0], furthest])
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

"""Which kernels take the time of the analysed steps?"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from perfdoctor.assistant.arguments import Kernels
from perfdoctor.assistant.bounded import Answer, name, page
from perfdoctor.assistant.desk import Desk, part_of
from perfdoctor.metrics.counters.kinds import measured_of_all
from perfdoctor.metrics.counters.rates import RATES
from perfdoctor.metrics.kernels.costs import kernel_rows
from perfdoctor.model.place import Place
from perfdoctor.report.words import wording

_SHOWN = 10


def _counted(places: Sequence[Place], kernel: str) -> dict[str, float]:
    """What the GPU's own counters saw while it ran, as shares of the peak; {} where that is not known."""
    found = measured_of_all(places, "name", [kernel])
    shares = {column: float(found[column][0]) for column in RATES}
    return {column: round(share, 3) for column, share in shares.items() if not math.isnan(share)}


def answer(asked: Kernels, desk: Desk) -> Answer:
    run = desk.examined(asked.path, part_of(asked)).run
    places = [place for place in run.places if asked.rank in (None, place.rank)]
    every = kernel_rows(places)
    wanted = [
        each
        for each in every
        if asked.family in (None, each.family) and (asked.name_contains is None or asked.name_contains in each.name)
    ]
    window_ns = sum(place.window_ns for place in places)
    rows, pages = page(
        wanted, asked,
        lambda each: {
            "name": name(each.name), "family": each.family, "math_path": each.math_path or None, "count": each.count,
            "total_ns": each.total_ns, "mean_ns": each.mean_ns, **_counted(places, each.name),
        },
    )  # fmt: skip
    total_ns = sum(each.total_ns for each in wanted)
    lines = [
        f"{wording.counted(len(wanted), 'kernel')}, {wording.duration(total_ns)} in the analysed steps.",
        *(
            f"{wording.duration(row['total_ns'])}, {row['count']} times: {json.dumps(row['name'], ensure_ascii=False)}"
            for row in rows[:_SHOWN]
        ),
    ]
    return Answer("\n".join(lines), {
        "kernels": rows, **pages, "total_ns": total_ns, "window_ns": window_ns,
        "is_recorded": "kernels" in run.timeline.recorded,
    })  # fmt: skip

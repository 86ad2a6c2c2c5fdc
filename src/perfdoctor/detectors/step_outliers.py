"""Some steps take much longer than their neighbours: which part of them does?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.findings import Finding, Measure, Rows, Saving
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.outliers import OWNERS, Outliers, outliers, same_work
from perfdoctor.metrics.run import Run
from perfdoctor.metrics.units import ms, percent

#: How many of the longest steps the table names.
_TABLE_ROWS = 5


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Of the place that loses most by a cause of its own: the others wait for it in their collectives."""
    found = {id(place): _of(place, at) for place in run.places}
    usable = [place for place in run.places if found[id(place)] is not None]
    if not usable:
        return

    def lost_ns(place: Place) -> int:
        each = found[id(place)]
        return int(each.excess_ns.sum()) if each else 0

    def own(place: Place) -> bool:
        each = found[id(place)]
        return each is not None and each.part != "exposed_communication"

    place = max(usable, key=lambda each: (own(each), each.share(lost_ns(each))))
    long = found[id(place)]
    share = place.share(lost_ns(place))
    if long is None or share < at["min_share_of_step"]:
        return
    excess = place.per_step(lost_ns(place))
    of_part = min(place.per_step(long.part_excess_ns), excess)
    # More kernels or larger ones are more work: that is no sickness, unless it was not meant.
    likely = of_part if long.part != "compute" or same_work(place, long.rows, at["same_work_tolerance"]) else 0
    yield Finding(
        rule="step-outliers",
        saving_ns_per_step=Saving(likely // 2, likely, excess),
        confidence="high" if long.period else "medium",
        values={
            "long_steps": int(long.rows.size),
            "steps_seen": int(long.durations_ns.size),
            "longest_ms": ms(int(long.durations_ns.max())),
            "median_ms": ms(long.median_ns),
            "lost_percent": percent(share),
            "cause": long.part.replace("_", " "),
            "cause_percent": percent(of_part / excess) if excess else 0.0,
            "period": long.period,
        },
        evidence=(
            Measure(f"what the long steps of rank {place.rank} lose, on the mean of all", excess, "ns"),
            Measure("of it in the part that grew most", of_part, "ns"),
            _table(long),
        ),
        situation="periodic" if long.period else "",
        symptom_of=OWNERS.get(long.part, ()),
    )


def _of(place: Place, at: Mapping[str, float]) -> Outliers | None:
    """The long steps, if there are enough sure steps to tell and few enough of them to be exceptions."""
    if place.steps.used < at["min_steps"] or place.steps.confidence == "low":
        return None
    found = outliers(place, at["deviations"], at["min_excess_share"])
    few = 0 < found.rows.size <= at["max_share_of_steps"] * found.durations_ns.size
    return found if few and found.part else None


def _table(found: Outliers) -> Rows:
    order = (-found.excess_ns).argsort(kind="stable")[:_TABLE_ROWS]
    rows = [
        (
            f"step {int(found.rows[each]) + 1} of those used",
            int(found.durations_ns[found.rows[each]]),
            int(found.excess_ns[each]),
        )
        for each in order.tolist()
    ]
    return Rows("Longest steps", ("step", "duration", "above the median"), ("text", "ns", "ns"), tuple(rows))

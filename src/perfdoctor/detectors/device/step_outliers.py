"""Some steps take much longer than their neighbours: which part of them does?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.accounting.longest import Moment, longest
from perfdoctor.metrics.accounting.outliers import OWNERS, Outliers, edges, least_of_rate, outliers, same_work
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.records.savings import Saving

#: How many of the longest steps the table names.
_TABLE_ROWS = 5


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the long steps of the place that loses most by a cause of its own; others wait for it in collectives."""
    found = _worst(run, at)
    if found is None or found.share < at["min_share_of_step"]:
        return
    long, high_ns = found.long, found.place.per_step(found.long.excess_high_ns)
    least_ns = found.place.per_step(long.excess_low_ns)
    # What comes by chance may come less often from now on: as a share of how often it came.
    least_often = 1.0 if long.period else least_of_rate(long.rows.size)
    # More kernels or larger ones are more work: that is no anomaly.
    is_anomaly = long.part != "compute" or same_work(found.place, long.rows, at["same_work_tolerance"])
    # The long steps become like the others: the median of these, or their longest or shortest tenth.
    saving = Saving(int(least_often * least_ns), found.excess_ns, high_ns) if is_anomaly else at_most(high_ns)
    yield Finding(
        rule="step-outliers",
        saving_ns_per_step=saving,
        confidence="high" if long.period else "medium",
        values={
            "long_steps": int(long.rows.size),
            "steps_seen": int(long.durations_ns.size),
            "longest_ms": ms(int(long.durations_ns.max())),
            "median_ms": ms(long.median_ns),
            "lost_percent": percent(found.share),
            "cause": long.part.replace("_", " "),
            "cause_percent": percent(found.of_part_ns / found.excess_ns) if found.excess_ns else 0.0,
            "period": long.period,
            "excess_ms": ms(found.excess_ns),
            "least_excess_ms": ms(least_ns),
            "most_excess_ms": ms(high_ns),
            "least_often_share": least_often,
        },
        evidence=(
            Measure(f"what the long steps of rank {found.place.rank} lose, on the mean of all", found.excess_ns, "ns"),
            Measure("of it in the part that grew most", found.of_part_ns, "ns"),
            _table(long),
            *longest(run, [found.longest]),
        ),
        situation="periodic" if long.period else "",
        symptom_of=OWNERS.get(long.part, ()),
        formula="" if is_anomaly else "more-work",
    )


class _Found(Struct, frozen=True):
    """The long steps of one place."""

    place: Place
    long: Outliers

    @property
    def lost_ns(self) -> int:
        """Ns by which all of them together exceed the median."""
        return int(self.long.excess_ns.sum())

    @property
    def share(self) -> float:
        return self.place.share(self.lost_ns)

    @property
    def excess_ns(self) -> int:
        """Lost ns a step, on the mean of all steps."""
        return self.place.per_step(self.lost_ns)

    @property
    def of_part_ns(self) -> int:
        """Lost ns a step in the part that grew most, on the mean of all steps."""
        return min(self.place.per_step(self.long.part_excess_ns), self.excess_ns)

    @property
    def longest(self) -> Moment:
        """When the longest of them ran."""
        step = int(self.long.rows[self.long.excess_ns.argmax()])
        bounds = edges(self.place)
        return self.place.rank, int(bounds[step]), int(bounds[step + 1])


def _worst(run: Run, at: Mapping[str, float]) -> _Found | None:
    """The place that loses most; one whose collectives alone grew had only waited for another."""
    found = []
    for place in run.places:
        if place.steps.used >= at["min_steps"] and place.steps.confidence != "low":
            long = outliers(place, at["reach"], at["min_excess_share"])
            # Few enough of them to be exceptions.
            if 0 < long.rows.size <= at["max_share_of_steps"] * long.durations_ns.size and long.part:
                found.append(_Found(place, long))
    return max(found, key=lambda each: (each.long.part != "exposed_communication", each.share), default=None)


def _table(found: Outliers) -> Rows:
    order = (-found.excess_ns).argsort(kind="stable")[:_TABLE_ROWS]
    each = zip(found.rows[order].tolist(), found.excess_ns[order], strict=True)
    rows = [(f"step {at + 1} of those used", int(found.durations_ns[at]), int(excess_ns)) for at, excess_ns in each]
    return Rows("Longest steps", ("step", "duration", "above the median"), ("text", "ns", "ns"), tuple(rows))

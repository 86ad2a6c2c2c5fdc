"""Was one step left out of all numbers, since something that comes once made it far longer than the others?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure

#: What comes once, in words.
_CAUSES = {"allocator": "memory allocation", "compilation": "compilation or loading of code"}


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the step that `prepare` left out."""
    odd = run.odd_step
    if odd is None:
        return
    excess_ns = odd.duration_ns - odd.usual_ns
    if excess_ns < at["min_share_of_step"] * odd.of * odd.usual_ns:
        return
    yield Finding(
        rule="one-long-step",
        saving_ns_per_step=at_most(excess_ns // odd.of),
        confidence="low",
        values={
            "step": odd.number,
            "steps_seen": odd.of,
            "longest_ms": ms(odd.duration_ns),
            "median_ms": ms(odd.usual_ns),
            "excess_ms": ms(excess_ns),
            "cause": _CAUSES[odd.part],
            "cause_percent": percent(min(odd.part_excess_ns / excess_ns, 1.0)),
        },
        evidence=(
            Measure("the long step, mean of all ranks", odd.duration_ns, "ns"),
            Measure("the median of the other steps", odd.usual_ns, "ns"),
            Measure("what grew most in it, on the rank where it grew most", odd.part_excess_ns, "ns"),
        ),
        situation=odd.part,
    )

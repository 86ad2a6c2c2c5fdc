"""A compiler, a tuner or the loading of kernels is at work in steady steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_idle import of_cause
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find compilation in steady steps: coming once is warm-up, coming in several of them is a fault."""
    least_share = at["min_share_of_step"]
    found = of_cause(run, "compilation", least_share) if run.repeats else None  # else: one-time-costs
    if found is None:
        return
    situation, named = found.recurrence(least_share), found.innermost("calls", "ops", "ranges", "functions")
    likely = 0.0 if situation else at["recoverable_share_likely"]
    yield Finding(
        rule="recompilation",
        saving_ns_per_step=Shares(min(at["recoverable_share_low"], likely), likely).of(found.ns),
        confidence="low" if situation else "high",
        values=found.recurring_values(least_share, named, "a compiler"),
        evidence=(
            *found.recurring_evidence("idle while something was compiled, tuned or loaded", least_share),
            *found.table("Innermost call, op, range or function meanwhile", named),
        ),
        situation=situation,
    )

"""Trial trainings, as searches for a learning rate, take a large part of the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_run import of_kind
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find it where it takes a notable part of the time from the first step to the last."""
    found = of_kind(run, "learning_rate_search", at["min_share_of_training"])
    if found is None:
        return
    yield Finding(
        rule="long-learning-rate-searches",
        saving_ns_per_step=shares(at, "recoverable_share").of(found.per_step_ns),
        confidence="high" if found.is_sure else "medium",
        values=found.between_values(),
        evidence=found.between_evidence("searches for a learning rate, in the whole run"),
        situation=found.situation,
        run_ns=found.time.training_ns,
        run_steps=found.time.steps,
        lines=found.lines,
    )

"""Rollouts take a large part of the training's time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_run import of_kind
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find it where it takes a notable part of the time from the first step to the last."""
    found = of_kind(run, "rollout", at["min_share_of_training"])
    if found is None:
        return
    policy_share = found.time.forward_share[found.kind]
    all_but_one = 1 - 1 / at["environments"]
    likely_ns = int(found.per_step_ns * policy_share * all_but_one)
    high_ns = max(int(found.per_step_ns * all_but_one), likely_ns)
    yield Finding(
        rule="long-rollouts",
        saving_ns_per_step=Saving(int(likely_ns * at["certain_share"]), likely_ns, high_ns),
        confidence="high" if found.is_sure else "medium",
        values={**found.between_values(), "policy_share": policy_share},
        evidence=found.between_evidence("rollouts, in the whole run"),
        situation=found.situation,
        run_ns=found.time.training_ns,
        run_steps=found.time.steps,
        lines=found.lines,
    )

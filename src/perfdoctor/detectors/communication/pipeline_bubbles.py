"""Stages of a pipeline wait for each other's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.communication.collectives import exposed_rows_ns, proven_messages
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find exposed sends and receives, on the mean of the recorded stages: waiting for another stage is the bubble."""
    found = of_collectives(run, proven_messages, 1.0, at["min_share_of_step"], of_job=True)
    if found is None or found.per_step < at["min_messages_per_step"]:
        return
    columns = ("rank", "compute", "exposed sends and receives")
    waits_ns = [(place, exposed_rows_ns(place, proven_messages(place))) for place in run.places[:16]]
    stages = tuple((each.rank, each.per_step(each.compute.total_ns), each.per_step(ns)) for each, ns in waits_ns)
    yield found.finding(
        rule="pipeline-bubbles",
        saving=shares(at, "won_share").of(found.ns),
        confidence="high" if len(run.job.places) > 1 else "medium",
        values={"messages_per_step": found.per_step, **found.time_values("exposed")},
        evidence=(
            Measure("exposed sends and receives", found.ns, "ns"),
            Rows("Waiting by stage, a step", columns, ("count", "ns", "ns"), stages),
            *longest_exposed(run, "collectives", proven_messages),
        ),
    )

"""Stages of a pipeline wait for each other's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.accounting.longest import longest_exposed
from perfdoctor.metrics.communication.collectives import exposed_rows_ns
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.vocabulary.names import nccl as nccl_names


def _messages(place: Place) -> Mask:
    """One bool a row: surely from one rank to another. The kernel's name alone might as well be an all-to-all's."""
    frame = place.collectives
    called = launches_of(place, "collectives").while_open(nccl_names.POINT_TO_POINT, "ranges")
    proven = (frame["group_size"] != UNKNOWN) | called
    rows: Mask = frame.text("kind").equals("send_recv") & proven
    return rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Exposed sends and receives, a mean over the stages recorded: waiting for another stage is the bubble."""

    def exposed(place: Place) -> float:
        return exposed_rows_ns(place, _messages(place))

    worst = run.worst(exposed)
    count = np.count_nonzero(_messages(worst)) / worst.units
    if count < at["min_messages_per_step"] or run.share(exposed) < at["min_share_of_step"]:
        return
    exposed_ns = run.mean(exposed)
    yield Finding(
        rule="pipeline-bubbles",
        saving_ns_per_step=saving(exposed_ns, at["won_share_low"], at["won_share_likely"]),
        confidence="high" if len(run.places) > 1 else "medium",
        values={
            "messages_per_step": count,
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
            "exposed_percent": percent(exposed_ns / run.step_ns),
        },
        evidence=(
            Measure("exposed sends and receives", exposed_ns, "ns"),
            Rows(
                "Waiting by stage, a step",
                ("rank", "compute", "exposed sends and receives"),
                ("count", "ns", "ns"),
                tuple(
                    (place.rank, place.per_step(place.compute.total_ns), place.per_step(exposed(place)))
                    for place in run.places[:16]
                ),
            ),
            *longest_exposed(run, "collectives", _messages),
        ),
    )

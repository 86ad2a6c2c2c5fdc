"""Some ranks carry more bytes through the all-to-alls than others, and all wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.communication.collectives import exposed_rows_ns, matched_bytes, transfer_share
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import Mask
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.records.savings import Saving


def _all_to_alls(place: Place) -> Mask:
    return place.collectives.text("kind").equals("all_to_all")


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Bytes of each matched all-to-all, the largest load against the mean; each collective takes as long as that."""
    loads = matched_bytes(run, "all_to_all")
    if loads is None:
        return
    largest, mean = float(loads.sizes.max(axis=0).sum()), float(loads.sizes.mean(axis=0).sum())
    excess = largest / max(mean, 1) - 1
    transfer = transfer_share(run, "all_to_all")

    def exposed(place: Place) -> float:
        return exposed_rows_ns(place, _all_to_alls(place)) * transfer

    exposed_ns = run.mean(exposed)
    won_ns = int(exposed_ns * (1 - mean / max(largest, 1)))
    if excess < at["min_excess_share"] or won_ns < at["min_share_of_step"] * run.step_ns:
        return
    by_rank = loads.sizes.sum(axis=1)
    worst = int(np.argmax(by_rank))
    units = run.places[0].units
    yield Finding(
        rule="all-to-all-imbalance",
        saving_ns_per_step=Saving(won_ns // 2, won_ns, won_ns),
        confidence="medium",
        values={
            "excess_percent": percent(excess),
            "loaded_rank": loads.ranks[worst],
            "exposed_ms": ms(exposed_ns),
            "step_ms": ms(run.step_ns),
        },
        evidence=(
            Measure("exposed all-to-alls", exposed_ns, "ns"),
            Measure("largest load above the mean, over all of them", excess, "share"),
            Rows(
                "Bytes in all-to-alls by rank, a step",
                ("rank", "bytes"),
                ("count", "bytes"),
                tuple((rank, int(total) // units) for rank, total in zip(loads.ranks, by_rank, strict=True)),
            ),
        ),
        work=work_of(run, _all_to_alls),
        affected_ns=exposed_ns,
    )

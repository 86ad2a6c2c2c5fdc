"""Some ranks carry more bytes through the all-to-alls than others, and all wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from perfdoctor.detectors.of_work import of_collectives
from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.communication.by_use import use_of_kind
from perfdoctor.metrics.communication.collectives import matched_bytes, transfer_share
from perfdoctor.metrics.communication.experts import permutation, tokens_of_experts
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.replay.job.late import even_exchange_ns


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Compare the largest load of each matched all-to-all with the mean: it takes as long as the largest."""
    sent = matched_bytes(run, "all_to_all")
    loads = sent or tokens_of_experts(run)
    if loads is None:
        return
    largest, mean = float(loads.sizes.max(axis=0).sum()), float(loads.even.sum())
    excess = largest / max(mean, 1) - 1
    transfer = transfer_share(run, "all_to_all")
    found = of_collectives(run, lambda place: place.collectives.text("kind").equals("all_to_all"), transfer)
    if found is None:
        return
    won_ns = int(found.ns * (1 - mean / max(largest, 1)))
    replayed_ns = even_exchange_ns(run, mean / max(largest, 1))
    if replayed_ns is not None:
        won_ns = max(int(replayed_ns), won_ns)
    if excess < at["min_excess_share"] or won_ns < at["min_share_of_step"] * run.step_ns:
        return
    by_rank = loads.sizes.sum(axis=1)
    worst = int(np.argmax(by_rank))
    units = run.places[0].units
    finding = found.finding(
        rule="all-to-all-imbalance",
        saving=half_certain(won_ns, won_ns),
        confidence="medium",
        values={
            "excess_percent": percent(excess),
            "use": use_of_kind(run, "all_to_all"),
            "loaded_rank": loads.ranks[worst],
            "exposed_ms": ms(found.ns),
            "step_ms": ms(run.step_ns),
            "even_ms": ms(won_ns),
        },
        formula="" if replayed_ns is None else "replayed",
        situation="" if sent else "tokens",
        evidence=(
            Measure("exposed all-to-alls", found.ns, "ns"),
            Measure("largest load above the mean, over all of them", excess, "share"),
            *permutation(run),
            Rows(
                "Bytes in all-to-alls by rank, a step" if sent else "Rows of the experts' products by rank, a step",
                ("rank", "bytes" if sent else "rows"),
                ("count", "bytes" if sent else "count"),
                tuple((rank, int(total) // units) for rank, total in zip(loads.ranks, by_rank, strict=True)),
            ),
        ),
    )
    yield replace(finding, by_all_ranks=replayed_ns is not None)

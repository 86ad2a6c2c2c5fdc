"""Chains of kernels that only pass over memory, one behind the other, which a compiler would make one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.kernels.attention import attention_pieces
from perfdoctor.metrics.kernels.chains import Chains, elementwise_chains, in_chains
from perfdoctor.metrics.kernels.sets import largest
from perfdoctor.metrics.savings import saving
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def _between_ns(place: Place, chains: Chains) -> float:
    """Time of the passes over memory that lie between the first and the last of each chain: all but one in n."""
    rows = in_chains(chains)
    summed = int(place.kernel_ns[rows].sum())
    if not summed:
        return 0.0
    between = float((place.kernel_ns[rows] * (1 - 1 / chains.links[rows])).sum())
    return between * place.alone_ns(rows) / summed  # beside other kernels they gain less


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Eager kernels that each last long enough to be bound by memory, so many in a row."""
    found = {
        id(place): elementwise_chains(
            place,
            at["min_kernels_in_chain"],
            at["memory_bound_kernel_ns"],
            attention_pieces(place, at["max_kernels_between_products"])[0],  # unfused-attention owns these
        )
        for place in run.places
    }
    between = run.mean(lambda place: _between_ns(place, found[id(place)]))
    if not run.places or between * at["fusable_share_likely"] < at["min_share_of_step"] * run.step_ns:
        return

    def chains_ns(place: Place) -> int:
        return place.alone_ns(in_chains(found[id(place)]))

    worst = run.worst(chains_ns)
    rows = in_chains(found[id(worst)])
    count = np.unique(found[id(worst)].number[rows]).size / worst.units
    yield Finding(
        rule="elementwise-chains",
        saving_ns_per_step=saving(
            between, at["fusable_share_low"], at["fusable_share_likely"], at["fusable_share_high"]
        ),
        confidence="medium",
        values={
            "chains_per_step": count,
            "links_mean": rows.sum() / worst.units / count,
            "chains_ms": ms(run.mean(chains_ns)),
            "step_ms": ms(run.step_ns),
            "chains_percent": percent(run.share(chains_ns)),
        },
        evidence=(
            Measure("kernels in chains a step", rows.sum() / worst.units, "count"),
            Measure("their time", run.mean(chains_ns), "ns"),
            Measure("of it passes over memory between two of them", between, "ns"),
            largest(worst, rows, "Largest of them, a step"),
        ),
        work=work_of(run, lambda place: in_chains(found[id(place)])),
        affected_ns=run.mean(chains_ns),
    )

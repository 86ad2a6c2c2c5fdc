"""Chains of kernels that only pass over memory, one behind the other, which a compiler would make one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import saving_in_cases
from perfdoctor.metrics.finding_rows import largest, saved_alone_ns
from perfdoctor.metrics.kernels.attention import attentions
from perfdoctor.metrics.kernels.chains import Chains, elementwise_chains, saved_shares
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find eager kernels that each last long enough to be bound by memory, so many in a row."""

    @once_per_place
    def chains(place: Place) -> Chains:
        others = attentions(place, at["max_kernels_between_products"]).between  # unfused-attention owns these
        return elementwise_chains(place, at["min_kernels_in_chain"], at["memory_bound_kernel_ns"], others)

    def saved_ns(place: Place, case: str) -> float:
        """Ns of the window in passes over memory that one kernel a chain would not make."""
        saved = float((place.kernel_ns * saved_shares(place, chains(place), case)).sum())
        return saved_alone_ns(place, chains(place).links > 0, saved)

    saving = saving_in_cases(run, saved_ns)
    if not saving.likely or saving.likely < at["min_share_of_step"] * run.step_ns:
        return
    found = of_kernels(run, lambda place: chains(place).links > 0)
    if found is None:
        return
    of_worst = chains(found.worst)
    count = np.unique(of_worst.number[found.worst_rows]).size / found.worst.units
    yield found.finding(
        rule="elementwise-chains",
        saving=saving,
        confidence="medium",
        values={"chains_per_step": count, "links_mean": found.per_step / count, **found.time_values("chains")},
        evidence=(
            Measure("kernels in chains a step", found.per_step, "count"),
            Measure("their time", found.ns, "ns"),
            Measure("of it what each writes for the next to read", saving.likely, "ns"),
            largest(found.worst, found.worst_rows, "Largest of them, a step"),
        ),
    )

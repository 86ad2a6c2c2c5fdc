"""Kernels whose neighbouring threads do not read neighbouring numbers: most of what the memory sends is thrown away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.metrics.kernels.limits import Bounds, claim, evidence
from perfdoctor.metrics.kernels.profiles import Measured
from perfdoctor.metrics.units import percent
from perfdoctor.model.columns import Floats
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding


def _share_won(kernels: Measured, reached: float) -> Floats:
    """The share of its time that a kernel saves if its busiest unit comes to `reached` with nothing fetched in vain.

    Caches then move only what is used, memory no more than that (what L2 held was not fetched in vain), and the rest
    has the same to do.
    """
    excess, dram = kernels.number("excess_sector_share"), kernels.number("dram_share")
    dram = np.where(np.isnan(dram), kernels.number("memory_share"), dram)
    needed = np.fmin(kernels.number("useful_bytes") / np.maximum(kernels.number("dram_bytes"), 1), 1.0)
    caches = np.fmax(kernels.number("l1_share"), kernels.number("l2_share")) * (1 - excess)
    others = np.fmax(caches, kernels.number("sm_share"))
    return np.where(np.isnan(dram), np.nan, 1 - np.fmax(dram * needed, others) / reached)


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find kernels that fetch for nothing, counted by sectors of 32 bytes between the SMs and L2."""
    bounds = Bounds(at["min_excess_share"], at["min_kernel_ns"])
    found = claim(run, bounds.wasteful, with_eager=True)
    if not found.rows.any() or found.share < at["min_share_of_step"]:
        return

    def share_won(kernels: Measured, case: str) -> Floats:
        return _share_won(kernels, at[f"reached_share_{case}"])

    gain_ns = found.measured_gain_ns(share_won)
    yield Finding(
        rule="uncoalesced-access",
        saving_ns_per_step=found.saving(
            share_won,
            # No more than what is fetched in vain, nor than NVIDIA's rule about the same fault hopes for.
            lambda kernels: np.fmin(
                kernels.number("excess_sector_share"), kernels.estimated_by("UncoalescedGlobalAccess")
            ),
        ),
        confidence="medium",
        values={
            **found.sentence_values(gain_ns),
            "excess_percent": percent(found.mean(found.kernels.number("excess_sector_share"))),
        },
        evidence=evidence(
            found,
            {
                "fetched for nothing": found.kernels.number("excess_sector_share"),
                "how busy memory and caches are": found.kernels.number("memory_share"),
            },
        ),
        situation="alone" if found.alone else "",
        work=found.work(),
        affected_ns=found.affected_ns,
        measured_gain_ns=gain_ns,
    )

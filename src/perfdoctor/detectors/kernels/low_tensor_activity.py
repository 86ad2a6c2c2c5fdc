"""Products that leave tensor cores idle most of the time, though neither type, size, grid nor memory is the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.counters.kinds import counted_evidence, of_grids
from perfdoctor.metrics.grouping import weighted_mean
from perfdoctor.metrics.kernels.matmul_sizes import misaligned_matmuls
from perfdoctor.metrics.kernels.profiles import on_tensor_cores, tensor_evidence
from perfdoctor.metrics.units import percent
from perfdoctor.metrics.work.half_precision import half_products, wide_products
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES


def _underused(place: Place, at: Mapping[str, float]) -> Mask:
    """One bool a kernel: is it a product in 16 bits, on most SMs, in which tensor cores hardly work?"""
    counted, kernels = of_grids(place), place.kernels
    narrow = half_products(place) | (on_tensor_cores(place) & ~wide_products(place))
    idle = (counted["tensor_active_share"] <= at["max_tensor_share"]) & (
        counted["sm_active_share"] > at["few_sms_share"]
    )
    others: Mask = misaligned_matmuls(place).rows | (kernels["is_graph"] != 0)  # these have a rule, or are many kernels
    computing = idle & (counted["dram_share"] <= at["max_memory_share"]) & ~others
    return narrow & computing & place.kernel_rows(*MATMUL_FAMILIES) & (kernels.duration_ns >= at["short_kernel_ns"])


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find them by what the GPU's counters saw of kernels of their name and grid."""
    found = of_kernels(run, lambda place: _underused(place, at), at["min_share_of_step"])
    if found is None:
        return
    worst, rows = found.worst, found.worst_rows
    weight = worst.kernel_ns[rows]
    means = {name: weighted_mean(values[rows], weight) for name, values in of_grids(worst).items()}
    needed = max(means["tensor_active_share"] / at["reached_share"], means["dram_share"] / at["reached_memory_share"])
    yield found.finding(
        rule="low-tensor-activity",
        saving=Shares(at["saved_share_low"], at["saved_share_likely"], max(1 - needed, 0.0)).of(found.ns),
        confidence="medium",
        values={
            **found.kernel_values(),
            "tensor_percent": percent(means["tensor_active_share"]),
            "active_percent": percent(means["sm_active_share"]),
            "memory_percent": percent(means["dram_share"]),
            "needed_percent": percent(needed),
        },
        evidence=(
            *tensor_evidence(worst, rows),
            *counted_evidence(worst, rows),
            *found.kernel_evidence("such products a step"),
        ),
        situation="convolutions" if 2 * _ns(worst, rows, "convolution") > _ns(worst, rows, *MATMUL_FAMILIES) else "",
    )


def _ns(place: Place, rows: Mask, *families: str) -> int:
    return int(place.kernel_ns[rows & place.kernel_rows(*families)].sum())

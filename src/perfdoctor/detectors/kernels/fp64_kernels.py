"""Kernels other than matrix multiplications that compute on 64-bit numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names


def _wide(place: Place) -> Mask:
    """One bool a kernel: is it on 64-bit numbers? Products of matrices are fp32-matmuls', those with a vector count."""
    names = place.kernels.name
    vector = names.where(kernel_names.is_vector_product) & names.has(kernel_names.input_type, "fp64")
    return vector | (names.matches(kernel_names.ON_FP64) & ~place.kernel_rows(*MATMUL_FAMILIES))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find kernels on 64-bit numbers by the type in their names."""
    found = of_kernels(run, _wide, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="fp64-kernels",
        saving=shares(at, "avoidable_share").of(found.ns),
        confidence="medium",
        values=found.kernel_values(),
        evidence=found.kernel_evidence("kernels on 64-bit numbers a step"),
    )

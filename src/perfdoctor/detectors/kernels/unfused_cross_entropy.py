"""The loss over many classes is computed step by step, each step a pass over all scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.detectors.saved_shares import shares
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.vocabulary.names import kernels as kernel_names


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find PyTorch's own kernels of the loss, by name."""

    def of_loss(place: Place) -> Mask:
        # The logarithm of the softmax and the loss. What a compiler has made is fused already.
        names = place.kernels.name
        return names.matches(kernel_names.CROSS_ENTROPY) & ~names.where(kernel_names.is_compiled)

    found = of_kernels(run, of_loss, at["min_share_of_step"])
    if found is None:
        return
    yield found.finding(
        rule="unfused-cross-entropy",
        saving=shares(at, "avoidable_share").of(found.ns),
        confidence="medium",
        values=found.kernel_values(),
        evidence=found.kernel_evidence("kernels of the loss a step"),
    )

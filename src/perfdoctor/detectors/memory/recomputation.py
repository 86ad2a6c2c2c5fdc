"""Forward work is done a second time, inside the backward pass (activation checkpointing)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from perfdoctor.detectors.of_work import of_kernels
from perfdoctor.metrics.kernels.recompute import kept_bytes, recomputed
from perfdoctor.metrics.memory.growth import reserved_peaks
from perfdoctor.metrics.units import mib, ms
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES


class _Memory(Struct, frozen=True):
    """Memory of the fullest device: never reserved, in all, and what activations need; None where not recorded."""

    free_bytes: int | None
    capacity_bytes: int
    needed_bytes: float | None

    def share_that_fits(self, room_for_all: float) -> float | None:
        """The share of recomputed results that fits. `room_for_all`: the need as a share of the memory, if unknown."""
        if self.free_bytes is None:
            return None
        needed = room_for_all * self.capacity_bytes if self.needed_bytes is None else self.needed_bytes
        return min(self.free_bytes / needed, 1.0) if needed else 1.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find kernels launched by functions of the forward pass from inside nodes of the backward pass."""
    found = of_kernels(run, recomputed, at["min_share_of_step"])
    if found is None:
        return
    memory = _memory(run)
    products = run.mean(lambda place: place.alone_ns(recomputed(place) & place.kernel_rows(*MATMUL_FAMILIES)))
    products = min(products, found.ns)
    yield found.finding(
        rule="recomputation",
        saving=_saving(found.ns, products, memory, at),
        formula="" if memory.free_bytes is None else "room" if memory.needed_bytes is None else "needed",
        confidence="medium" if memory.free_bytes is not None else "low",
        values={
            "kernels_per_step": found.per_step,
            **found.time_values("again"),
            "free_mib": mib(memory.free_bytes or 0),
            "needed_mib": mib(memory.needed_bytes or 0),
            "capacity_mib": mib(memory.capacity_bytes),
            "products_ms": ms(products),
        },
        evidence=(
            *found.kernel_evidence("kernels of forward work done again, a step"),
            *([Measure("never reserved on the fullest GPU", memory.free_bytes, "bytes")] if memory.free_bytes else []),
            *([Measure("activations to keep instead", memory.needed_bytes, "bytes")] if memory.needed_bytes else []),
        ),
    )


def _memory(run: Run) -> _Memory:
    known = [each for each in reserved_peaks(run.timeline) if each.capacity_bytes]
    fullest = min(known, key=lambda each: each.capacity_bytes - each.peak_bytes, default=None)
    needs = [need for place in run.places if (need := kept_bytes(place)) is not None]
    free = max(fullest.capacity_bytes - fullest.peak_bytes, 0) if fullest else None
    return _Memory(free, fullest.capacity_bytes if fullest else 0, max(needs, default=None))


def _saving(again_ns: int, products_ns: int, memory: _Memory, at: Mapping[str, float]) -> Saving:
    """The saving: as much of the time as its results fit into the memory that was never reserved.

    Where that is unknown, the results of matmuls and attention are kept, which are few and take most of the time.
    """
    share = memory.share_that_fits(at["room_for_all_share"])
    if share is None:
        return Saving(0, products_ns, again_ns)
    fits = int(share * again_ns)
    return Saving(0, fits, again_ns) if memory.needed_bytes is None else Saving(fits, fits, fits)

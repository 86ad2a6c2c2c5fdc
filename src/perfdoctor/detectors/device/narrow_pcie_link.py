"""The PCIe link of a GPU runs with fewer lanes, or slower, than GPU and machine could."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from perfdoctor.metrics.copies.pcie import bytes_per_second
from perfdoctor.metrics.copies.transfers import copies_of, exposed_ns
from perfdoctor.metrics.machine.gpu_samples import Gpu, gpus, of_places
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


@dataclass(frozen=True)
class _Narrow:
    gpu: Gpu
    generation: float
    width: float
    most_generation: float
    most_width: float

    @property
    def share(self) -> float:
        """What the link gives, as a share of what it could."""
        could = bytes_per_second(self.most_generation, self.most_width)
        return bytes_per_second(self.generation, self.width) / could if could else 1.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """The best that was seen under load: links rest in a lower generation while nothing crosses them."""
    sampled = gpus(run.timeline)
    found = [narrow for gpu in sampled if (narrow := _narrow(gpu, at)) is not None]
    if not found:
        return
    worst = min(found, key=lambda each: each.share)
    placed = of_places(run, at["min_load_share"], "pcie_width", "pcie_generation")
    waits_ns = run.mean(lambda place: _waits_ns(place, placed.get((place.rank, place.device or 0)), found))
    yield Finding(
        rule="narrow-pcie-link",
        saving_ns_per_step=Saving(0, int(waits_ns * at["recoverable_share_likely"]), waits_ns),
        confidence="high",
        values={
            "gpus": len(found),
            "sampled": len(sampled),
            "gpu": worst.gpu.device,
            "generation": int(worst.generation),
            "width": int(worst.width),
            "most_generation": int(worst.most_generation),
            "most_width": int(worst.most_width),
        },
        evidence=(
            Measure("what the link gives", bytes_per_second(worst.generation, worst.width), "bytes_per_second"),
            Measure("what it could", bytes_per_second(worst.most_generation, worst.most_width), "bytes_per_second"),
        ),
    )


def _narrow(gpu: Gpu, at: Mapping[str, float]) -> _Narrow | None:
    columns = [gpu.floats(c) for c in ("pcie_generation", "pcie_width", "max_pcie_generation", "max_pcie_width")]
    # Only where utilisation is known: a GPU that merely is not idle may still rest its link.
    used = np.nan_to_num(gpu.floats("utilization_share")) >= at["min_load_share"]
    known = used & ~np.isnan(np.stack(columns)).any(axis=0)
    if known.sum() < at["min_samples"]:
        return None
    generation, width, most_generation, most_width = (float(column[known].max()) for column in columns)
    found = _Narrow(gpu, generation, width, most_generation, most_width)
    return found if found.share < at["max_share_of_link"] else None


def _waits_ns(place: Place, gpu: Gpu | None, found: list[_Narrow]) -> float:
    """Of the copies over the link with nothing beside them, what a whole link would not take."""
    own = next((each for each in found if gpu is not None and each.gpu.device == gpu.device), None)
    if own is None:
        return 0.0
    return exposed_ns(place, copies_of(place, "h2d", "d2h")) * (1 - own.share)

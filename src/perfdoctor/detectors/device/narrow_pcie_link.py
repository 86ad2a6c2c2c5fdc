"""The PCIe link of a GPU runs with fewer lanes, or slower, than GPU and machine could."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.links import PCIE_PAYLOAD_SHARE, pcie_bytes_per_second
from perfdoctor.metrics.copies.transfers import copies_of, exposed_ns, host_memory, sizes
from perfdoctor.metrics.machine.gpu_samples import SampledGpu, gpus, of_places
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving


class _Narrow(Struct, frozen=True):
    gpu: SampledGpu
    generation: float
    width: float
    most_generation: float
    most_width: float

    @property
    def bytes_per_second(self) -> float:
        return pcie_bytes_per_second(self.generation, self.width)

    @property
    def most_bytes_per_second(self) -> float:
        return pcie_bytes_per_second(self.most_generation, self.most_width)

    @property
    def share(self) -> float:
        """What the link gives, as a share of what it could."""
        return self.bytes_per_second / self.most_bytes_per_second if self.most_bytes_per_second else 1.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the narrowest link, by the best seen under load: links rest in a lower generation while nothing crosses."""
    sampled = gpus(run.timeline)
    found = [narrow for gpu in sampled if (narrow := _narrow(gpu, at)) is not None]
    if not found:
        return
    worst = min(found, key=lambda each: each.share)
    placed = of_places(run, at["min_load_share"], "pcie_width", "pcie_generation")

    def waits_ns(place: Place, *, at_most: bool) -> float:
        gpu = placed.get(place.rank_and_device)
        own = next((each for each in found if gpu is not None and each.gpu.device == gpu.device), None)
        return _waits_ns(place, own, at["min_bytes"], at_most=at_most) if own else 0.0

    likely_ns, most_ns = (run.mean(partial(waits_ns, at_most=at_most)) for at_most in (False, True))
    yield Finding(
        rule="narrow-pcie-link",
        saving_ns_per_step=Saving(0, likely_ns, most_ns),
        confidence="high",
        values={
            "gpus": len(found),
            "sampled": len(sampled),
            "gpu": worst.gpu.device,
            "generation": int(worst.generation),
            "width": int(worst.width),
            "most_generation": int(worst.most_generation),
            "most_width": int(worst.most_width),
            "link_ms": ms(likely_ns),
            "most_ms": ms(most_ns),
        },
        evidence=(
            Measure("what the link gives", worst.bytes_per_second, "bytes_per_second"),
            Measure("what it could", worst.most_bytes_per_second, "bytes_per_second"),
        ),
    )


def _narrow(gpu: SampledGpu, at: Mapping[str, float]) -> _Narrow | None:
    columns = [gpu.floats(c) for c in ("pcie_generation", "pcie_width", "max_pcie_generation", "max_pcie_width")]
    # Only where utilisation is known: a GPU that merely is not idle may still rest its link.
    used = np.nan_to_num(gpu.floats("utilization_share")) >= at["min_load_share"]
    known = used & ~np.isnan(np.stack(columns)).any(axis=0)
    if known.sum() < at["min_samples"]:
        return None
    generation, width, most_generation, most_width = (float(column[known].max()) for column in columns)
    found = _Narrow(gpu, generation, width, most_generation, most_width)
    # a link of no lanes, or of a generation that there is not, is none that carries this program's copies
    return found if 0 < found.share < at["max_share_of_link"] else None


def _waits_ns(place: Place, own: _Narrow, least_bytes: float, *, at_most: bool) -> float:
    """Ns of the window that a whole link would save of large pinned copies with nothing beside them.

    The maximum that NVML reports is that of GPU and slot together (nvmlDeviceGetMaxPcieLinkWidth), so all of it is
    within reach. Likely a copy takes as long as its bytes over the narrow link, less PCIe's protocol: what it takes
    longer has another cause. Small copies wait for their latency, and pageable ones for the driver's own copy.
    """
    rows = copies_of(place, "h2d", "d2h") & host_memory(place, "pinned") & (sizes(place) >= least_bytes)
    if not rows.any():
        return 0.0
    lost_ns = exposed_ns(place, rows) * (1 - own.share)
    if at_most:
        return lost_ns
    took_ns = np.maximum(place.copies.duration_ns[rows], 1)
    link = PCIE_PAYLOAD_SHARE * own.bytes_per_second
    of_link = np.minimum(sizes(place)[rows] / link * 1e9, took_ns)
    return lost_ns * float(of_link.sum() / took_ns.sum())

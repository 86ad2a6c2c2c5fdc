"""Which limit of the device holds each launch that Nsight Compute measured, and how far is it from its roofline?

A launch has one limit: memory access out of order, else the unit that is busy, else what keeps all units idle. The
bounds are those of the rules about such kernels, so that a page says of a kernel what a finding says.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.peaks import peaks_of
from perfdoctor.metrics.grouping import combined, prevailing, ratio, sums, weighted_mean
from perfdoctor.metrics.kernels.limits import Bounds
from perfdoctor.metrics.kernels.profiles import TENSOR_CORES_AT_WORK, Measured, launches_alone
from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.timeline import Floats, Ints, Mask, Timeline
from perfdoctor.vocabulary.kinds import KERNEL_LIMITS, PROFILE_SECTIONS
from perfdoctor.vocabulary.rulebook import shared_thresholds

#: Long copies reach 80 to 93 % of the memory's peak, good matmuls 80 to 90 % of the tensor cores': from here on, little
#: is left to gain. memory-bound-kernels has the same of the memory.
_NEAR_PEAK = 0.7
#: Two shares of one unit, measured in different passes, are the same from here on.
_SAME = 0.9
_SHARES = (
    "sm_share", "tensor_share", "memory_share", "dram_share", "l1_share", "l2_share", "occupancy_share",
    "excess_sector_share",
)  # fmt: skip
_MEANS = (*_SHARES, "waves_per_sm", "sm_count", "peak_flop_per_second", "peak_dram_bytes_per_second")
_KEYS = tuple(KERNEL_LIMITS)


class MeasuredKernel(Struct, frozen=True):
    """All measured launches of one kernel in one size.

    `ns` is their time together, `share` that of the time of all measured launches. `limit`: the key of KERNEL_LIMITS
    that most of its time has; `busiest_share`: how near the busiest unit is to its peak. `stall`: what the longest of
    them waits for most. `flop` are those of the fp32 and fp64 units, `tensor_flop` those of tensor cores, most of them
    on inputs of `tensor_type`, of all launches together. `means`: other numbers of `kernel_profiles` by column, each
    launch counting as long as it ran. Numbers are NaN, and counts UNKNOWN, where they were not measured.
    """

    name: str
    gpu: str
    launches: int
    ns: float
    share: float
    limit: str
    busiest_share: float
    stall: str
    blocks: int
    threads_per_block: int
    flop: float
    tensor_flop: float
    tensor_type: str
    dram_bytes: float
    means: Mapping[str, float]

    @property
    def all_flop(self) -> float:
        """FLOP of all units; NaN where those of tensor cores, which computed, were not counted."""
        return self.flop if not self.tensor_flop > 0 and not self.uses_tensor_cores else self.flop + self.tensor_flop

    @property
    def flop_per_second(self) -> float:
        return self.all_flop / self.ns * 1e9 if self.ns else float("nan")

    @property
    def bytes_per_second(self) -> float:
        return self.dram_bytes / self.ns * 1e9 if self.ns else float("nan")

    @property
    def flop_per_byte(self) -> float:
        return self.all_flop / self.dram_bytes if self.dram_bytes else float("nan")

    @property
    def uses_tensor_cores(self) -> bool:
        return self.means["tensor_share"] >= TENSOR_CORES_AT_WORK

    @property
    def peak_flop_per_second(self) -> float:
        """The peak of the units that computed most: the report's own, of tensor cores the data sheet's. NaN unknown.

        The report's peak of tensor cores is that of sparse products.
        """
        if not self.tensor_flop > self.flop:
            return self.means["peak_flop_per_second"]
        published = peaks_of(self.gpu)
        return (published.matmul_flop_per_second(self.tensor_type) if published else 0.0) or float("nan")

    @property
    def share_of_roof(self) -> float:
        """Its rate over the roof at its intensity: NaN where the peaks or its FLOP are unknown.

        That is the larger of the shares of both peaks (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009).
        """
        rates = np.array([self.flop_per_second, self.bytes_per_second])
        peaks = np.array([self.peak_flop_per_second, self.means["peak_dram_bytes_per_second"]])
        return float(ratio(rates, peaks).max())

    @property
    def is_at_limit(self) -> bool:
        """Is its unit so near to its peak that little is left to gain?"""
        return bool(KERNEL_LIMITS[self.limit].unit) and self.unit_share >= _NEAR_PEAK

    @property
    def unit_share(self) -> float:
        """How near to its peak is the unit that limits it? Of a limit that is no unit's, the busiest one."""
        return self.means.get(KERNEL_LIMITS[self.limit].column, self.busiest_share)


def limits(kernels: Measured) -> Ints:
    """For each row the number of its limit among the keys of KERNEL_LIMITS."""
    bounds = _bounds()
    cases = {
        "sectors": bounds.wasteful(kernels),
        **_of_units(kernels, kernels.busiest_share >= bounds.busy_share),
        **_of_idle_units(kernels, bounds),
    }
    return np.select(list(cases.values()), [_KEYS.index(key) for key in cases], _KEYS.index("unknown")).astype(np.int64)


def limited_by(kernels: Measured, limit: str) -> Mask:
    """One bool a row: is this key of KERNEL_LIMITS its limit?"""
    of_limit: Mask = limits(kernels) == _KEYS.index(limit)
    return of_limit


def _bounds() -> Bounds:
    named = ("wasted-sectors", "short-kernel", "busy-unit", "few-warps")
    return Bounds(*(shared_thresholds()[name].value for name in named))


def _of_units(kernels: Measured, busy: Mask) -> dict[str, Mask]:
    """The rows whose busiest unit is the limit, by unit."""
    sm, dram = kernels.number("sm_share"), kernels.number("dram_share")
    memory = np.fmax(kernels.number("memory_share"), dram)
    of_memory = busy & (memory >= sm)
    return {
        "either": of_memory & np.isnan(dram),
        "memory": of_memory & (dram >= _SAME * memory),
        "caches": of_memory,
        "tensor": busy & (kernels.number("tensor_share") >= _SAME * sm),
        "compute": busy,
    }


def _of_idle_units(kernels: Measured, bounds: Bounds) -> dict[str, Mask]:
    """The rows in which no unit is busy, by what keeps them idle."""
    busiest, waves, time_ns = kernels.busiest_share, kernels.number("waves_per_sm"), kernels.rows.duration_ns
    few_warps = kernels.number("occupancy_share") < bounds.occupancy_share
    far: Mask = busiest < bounds.busy_share
    # In the last wave only the SMs that it reaches work: in whole waves the busiest unit would be busy.
    whole = busiest * ratio(np.ceil(waves), waves)
    return {
        "blocks": far & ((kernels.used_sms_share < 1) | (few_warps & (waves < 1))),
        "start": far & (time_ns > 0) & (time_ns < bounds.kernel_ns),
        "warps": far & few_warps,
        "tail": far & (waves > 1) & (whole >= bounds.busy_share),
        "latency": far,
    }


@once_per_timeline
def measured_kernels(timeline: Timeline) -> tuple[MeasuredKernel, ...]:
    """The kernels that were measured, each size by itself, those of most time first."""
    launches = launches_alone(timeline)
    rows, time_ns = launches.profiles, launches.time_ns
    if not len(rows):
        return ()
    group, first = combined(rows.name.codes.astype(np.int64), rows["blocks"], rows["threads_per_block"])
    ns = sums(group, time_ns, first.size)
    limit = prevailing(group, limits(launches), np.maximum(time_ns, 1), first.size)
    whole_ns = max(float(time_ns.sum()), 1.0)
    order = np.argsort(-ns, kind="stable").tolist()
    return tuple(_kernel(launches, group == at, float(ns[at]), whole_ns, _KEYS[limit[at]]) for at in order)


def _kernel(launches: Measured, own: Mask, ns: float, whole_ns: float, limit: str) -> MeasuredKernel:
    rows, weight = launches.profiles, np.maximum(launches.time_ns[own], 1)
    longest = int(np.flatnonzero(own)[np.argmax(weight)])

    def mean(values: Floats) -> float:
        return weighted_mean(values[own], weight)

    return MeasuredKernel(
        rows.name[longest],
        rows.text("gpu")[longest],
        int(own.sum()),
        ns,
        ns / whole_ns,
        limit,
        mean(launches.busiest_share),
        rows.text("stall")[longest],
        int(rows["blocks"][longest]),
        int(rows["threads_per_block"][longest]),
        float(rows.floats("flop")[own].sum()),
        float(rows.floats("tensor_flop")[own].sum()),
        rows.text("tensor_type")[longest],
        float(rows.floats("dram_bytes")[own].sum()),
        {column: mean(rows.floats(column)) for column in _MEANS},
    )


@once_per_timeline
def sections_missing(timeline: Timeline) -> tuple[str, ...]:
    """The sections of PROFILE_SECTIONS whose numbers no launch of the report has."""
    profiles = timeline["kernel_profiles"]
    return tuple(name for name, section in PROFILE_SECTIONS.items() if np.isnan(profiles.floats(section.column)).all())

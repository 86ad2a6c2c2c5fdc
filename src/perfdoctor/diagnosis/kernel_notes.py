"""What is said of kernels that Nsight Compute measured without a timeline: each one's limit, and what moves it?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfdoctor.metrics.kernels.kernel_limits import MeasuredKernel, measured_kernels, sections_missing
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.vocabulary.kinds import KERNEL_LIMITS, PROFILE_SECTIONS, stall_label
from perfdoctor.vocabulary.names.base_names import base_name
from perfdoctor.vocabulary.sentences import OF_MEASURED

#: How many kernels a note names at most, and how long their names may be.
_NAMED, _LONGEST_NAME = 3, 40


def of_single_kernels(run: Run) -> Iterator[str]:
    """The limits of the kernels that take most of the measured time, and what the report lacks."""
    kernels = () if run.places else measured_kernels(run.timeline)
    yield from (_of_kernel(kernel) for kernel in kernels[:_NAMED] if kernel.ns)
    for kernel in [kernel for kernel in kernels if not kernel.ns and kernel.limit == "unknown"][:_NAMED]:
        yield f"{_short(kernel)}: its time and its limit were not measured."
    if kernels and (lacking := sections_missing(run.timeline)):
        shown = ", ".join(f"{PROFILE_SECTIONS[name].shows} ({name})" for name in lacking)
        yield f"Record with ncu --set full, or --section, what Nsight Compute did not measure: {shown}."


def _of_kernel(kernel: MeasuredKernel) -> str:
    """`silu: 40.1 µs, 25 % of the measured time; at the limit of the memory bandwidth (DRAM at 92 % of its peak). …`"""
    limit, share = KERNEL_LIMITS[kernel.limit], _percent(kernel.share)
    time = f"{_short(kernel)}: {kernel.ns / 1e3:,.1f} µs, {share} {OF_MEASURED}"
    if not limit.moved:
        return f"{time}what limits it was {limit.label}."
    at, only = ("at the limit of", " only") if kernel.is_at_limit else ("limited by", "")
    return f"{time}{at} {limit.label} ({_shown(kernel)}). Shorter{only} with {limit.moved}."


def _short(kernel: MeasuredKernel) -> str:
    name = base_name(kernel.name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _shown(kernel: MeasuredKernel) -> str:
    """The numbers that show its limit."""
    idle = f"no unit above {_percent(kernel.busiest_share)} of its peak"
    sms = kernel.means["sm_count"]
    on = "" if math.isnan(sms) else f" on {sms:.0f} SMs"
    blocks = f"{kernel.blocks:,} blocks{on}, " if kernel.blocks != UNKNOWN else ""
    waits = f", its warps wait for {stall_label(kernel.stall)}" if kernel.stall else ""
    shown = {
        "sectors": f"{_percent(kernel.means['excess_sector_share'])} of the sectors that it requests are unnecessary",
        "blocks": blocks + idle,
        "warps": f"{_percent(kernel.means['occupancy_share'])} of the places for warps taken, {idle}",
        "tail": f"{kernel.means['waves_per_sm']:.2f} waves, {idle}",
        "start": idle,
        "latency": idle + waits,
    }
    return shown.get(kernel.limit, f"{KERNEL_LIMITS[kernel.limit].unit} at {_percent(kernel.unit_share)} of its peak")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"

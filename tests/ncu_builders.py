"""Timelines whose kernels Nsight Compute has measured: rows as literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from builders import frame
from msgspec.structs import replace

from perfdoctor.model.timeline import PROFILE_NUMBERS, UNKNOWN, Device, Frame, Timeline

MS = 1_000_000
NAN = float("nan")
#: What every profile has unless it says otherwise: not measured.
NOTHING = {
    **dict.fromkeys(PROFILE_NUMBERS, NAN), "blocks": 1024, "threads_per_block": 256, "gpu": "", "stall": "", "tensor_type": "",
    "compute_capability": UNKNOWN, "occupancy_limiter": "", "name": "some_kernel",
}  # fmt: skip


def profiles(*rows: Mapping[str, object]) -> Frame:
    """Measured launches: `gpu_time_ns` says how long, all else as it is given."""
    filled, at = [], 0
    for number, row in enumerate(rows):
        time_ns = row.get("gpu_time_ns", NAN)
        end = at + (0 if np.isnan(time_ns) else int(time_ns))
        filled.append({**NOTHING, **row, "launch": number, "start_ns": at, "end_ns": end})
        at = end
    return frame("kernel_profiles", filled)


def advice(*rows: Mapping[str, object]) -> Frame:
    """What NVIDIA's rules said: `launch`, `name`, `speedup_share`, `is_global`."""
    each = [{"speedup_share": NAN, "is_global": True, "message": "", "start_ns": 0, "end_ns": 0, **row} for row in rows]
    return frame("kernel_advice", each)


def with_ncu(drawn: Timeline, measured: Sequence[Mapping[str, object]], given: Sequence[Mapping[str, object]] = ()):
    frames = {**drawn.frames, "kernel_profiles": profiles(*measured), "kernel_advice": advice(*given)}
    return replace(drawn, frames=frames, recorded=drawn.recorded | {"kernel_profiles", "kernel_advice"})


def alone(measured: Sequence[Mapping[str, object]], given: Sequence[Mapping[str, object]] = ()) -> Timeline:
    """Nothing but what ncu measured."""
    return with_ncu(Timeline.build({}, ()), measured, given)


def steps(
    *kernels: Mapping[str, object], count: int = 4, gap_ns: int = 0, device: Device | None = None, **signals
) -> Timeline:
    """The same kernels in each of `count` steps, one behind the other, each with its launch a millisecond before.

    A kernel is its name, `ns`, `blocks` and `threads_per_block`; `stream` and `start_ns` (in the step) move it.
    """
    length = max(int(k.get("start_ns", 0)) + int(k["ns"]) for k in _placed(kernels)) + gap_ns
    rows, calls, ranges = [], [], []
    for step in range(count):
        base = 10 * MS + step * length
        ranges.append({"start_ns": base - 2 * MS, "end_ns": base - 2 * MS + length, "name": f"ProfilerStep#{step}"})
        for place, kernel in enumerate(_placed(kernels)):
            number = 1 + step * len(kernels) + place
            start = base + int(kernel["start_ns"])
            rows.append({
                "start_ns": start, "end_ns": start + int(kernel["ns"]), "name": kernel.get("name", "some_kernel"),
                "blocks": kernel.get("blocks", 1024), "threads_per_block": kernel.get("threads_per_block", 256),
                "stream": kernel.get("stream", 7), "correlation": number,
            })  # fmt: skip
            calls.append({
                "start_ns": base - 2 * MS + place * 1000, "end_ns": base - 2 * MS + place * 1000 + 500,
                "name": "cudaLaunchKernel", "correlation": number, "process": 100,
            })  # fmt: skip
    frames = {"kernels": frame("kernels", rows), "calls": frame("calls", calls), "ranges": frame("ranges", ranges)}
    frames |= {signal: frame(signal, found) for signal, found in signals.items()}
    devices = [device] if device else ()
    return Timeline.build(frames, [*frames, "copies", "collectives"], devices=devices)


def _placed(kernels: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    placed, at = [], 0
    for kernel in kernels:
        start = int(kernel.get("start_ns", at))
        placed.append({**kernel, "start_ns": start})
        at = start + int(kernel["ns"])
    return placed

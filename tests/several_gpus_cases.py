"""Drawn steps of one process, or of ranks, whose GPUs compute for different times."""

from __future__ import annotations

from builders import BASE_NS, timeline

from perfdoctor.model.timeline import Timeline

MS = 1_000_000


def gpus(*busy_ms: float, step_ms: float = 40, forward: str = "DataParallel.forward", ranks: bool = False) -> Timeline:
    """Four steps, in each of which GPU n computes for the nth number of ms; the process marks its forward pass."""
    kernels, calls, ranges = [], [], []
    for step in range(4):
        at = BASE_NS + round(step * step_ms * MS)
        for device, busy in enumerate(busy_ms):
            where = {"rank": device if ranks else 0, "process": 100 + device if ranks else 100}
            launched = {**where, "correlation": 100 * step + device}
            calls.append({**launched, "start_ns": at - 9_000, "end_ns": at - 8_000, "name": "cudaLaunchKernel"})
            kernels.append({**launched, "device": device, "start_ns": at, "end_ns": at + round(busy * MS), "name": "k"})
        for rank in range(len(busy_ms) if ranks else 1):
            where = {"rank": rank, "process": 100 + rank}
            end = at + round(step_ms * MS) - 11_000
            ranges.append({**where, "start_ns": at - 10_000, "end_ns": end, "name": f"ProfilerStep#{step}"})
            if forward:
                ranges.append({**where, "start_ns": at - 9_500, "end_ns": at + MS, "name": forward})
    return timeline(kernels=kernels, calls=calls, ranges=ranges, collectives=[], copies=[])

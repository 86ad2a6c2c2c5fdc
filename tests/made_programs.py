"""Recordings of programs that differ in what a fix needs: shapes, waits for values, GPUs."""

from __future__ import annotations

import numpy as np
from builders import BASE_NS, draw_steps, frame
from msgspec.structs import replace

from perfdoctor.model.timeline import Device, Timeline

GIB = 1 << 30
A100, T4, GTX1660 = "NVIDIA A100-SXM4-80GB", "Tesla T4", "NVIDIA GeForce GTX 1660 SUPER"


def program(**picture) -> Timeline:
    """Six steps of four kernels, each launched on its own."""
    return draw_steps(**{"kernels": "### ### ### ### ", "gpu": A100, "blocks": 64, **picture})


def with_torch(drawn: Timeline, version: str) -> Timeline:
    return replace(drawn, torch=version)


def with_grids(drawn: Timeline, grids) -> Timeline:
    """The same with these numbers of blocks, from the first kernel to the last."""
    kernels = drawn.kernels
    blocks = np.resize(np.asarray(grids, dtype=np.int64), len(kernels))
    return drawn.with_frame("kernels", kernels.with_columns(blocks=blocks))


def changing_shapes(**picture) -> Timeline:
    """Each step has sizes of its own."""
    return with_grids(program(**picture), range(1000))


def few_shapes() -> Timeline:
    """Steps of two sizes by turns."""
    return with_grids(program(), [64] * 4 + [32] * 4)


def reading(every: int) -> Timeline:
    """Steps of 24 kernels, and a value is read behind each so many of them."""
    reads = ("  " * (every - 1) + " I") * (24 // every)
    return program(
        kernels="# " * 24,
        host=["o" * 48, reads],
        legend={"I": ("ops", "aten::item")},
        recorded=["kernels", "calls", "ops"],
    )


def on_a_processor() -> Timeline:
    return draw_steps(host=["o" * 8 + " " * 8], launched_us_before=None)


def reserved(share: float) -> Timeline:
    """So much of the GPU's memory is reserved."""
    drawn = program()
    rows = [
        {"process": 100, "start_ns": BASE_NS + at, "end_ns": BASE_NS + at, "allocated_bytes": GIB,
         "reserved_bytes": round(share * 80 * GIB), "name": "cuda"}
        for at in range(3)
    ]  # fmt: skip
    return replace(
        drawn.with_frame("memory", frame("memory", rows)), devices=(Device(0, 0, A100, memory_bytes=80 * GIB),)
    )

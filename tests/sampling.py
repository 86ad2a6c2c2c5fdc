"""Samples of lines for a drawn timeline, as a sampler would have taken them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from builders import frame

from perfdoctor.timeline.model import Frame, Timeline


def sampled(
    drawn: Timeline, line_at: Callable[[int], str], *, begin_ns: int, end_ns: int, interval_ns: int, rank: int = 0
) -> Timeline:
    """`line_at` tells for a moment the own lines of the stack, innermost first, joined as the signal has them."""
    rows = [
        {"rank": rank, "start_ns": at, "end_ns": at, "name": stack.partition(" ← ")[0], "stack": stack,
         "interval_ns": interval_ns}
        for at in range(begin_ns + interval_ns // 2, end_ns, interval_ns)
        for stack in [line_at(at)]
    ]  # fmt: skip
    samples = Frame.join([drawn["line_samples"], frame("line_samples", rows).sorted()])
    return replace(drawn, frames={**drawn.frames, "line_samples": samples}, recorded=drawn.recorded | {"line_samples"})

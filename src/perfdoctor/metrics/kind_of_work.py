"""Does the recorded program train a model, or answer requests with one?

The one place that decides it: words, rules and fixes ask here.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.names import serving as names
from perfdoctor.vocabulary.names import torch as torch_names

Kind = Literal["training", "inference", "unknown"]


class KindOfWork(Struct, frozen=True):
    """`server`: whose server it is, "" where it is none or has no name."""

    kind: Kind
    server: str = ""


@once_per_timeline
def kind_of_work(timeline: Timeline) -> KindOfWork:
    """Training where anything of a backward pass or an optimizer was recorded, on whatever rank.

    Inference where a server, a KV cache or an iteration of a server names itself; else where layers ran on the host
    (ops were recorded) with neither a backward pass nor a loss. Anything else is unknown: kernels alone look alike.
    """
    if _any(timeline, names.TRAINS) or timeline.kernels.name.matches(names.TRAINING_KERNEL).any():
        return KindOfWork("training")
    server = next((server for server, pattern in names.SERVERS.items() if _any(timeline, pattern, kernels=True)), "")
    caches = bool(timeline.kernels.name.matches(names.CACHE_KERNEL).any())
    if server or caches or _any(timeline, names.ITERATION) or _only_forward(timeline):
        return KindOfWork("inference", server)
    return KindOfWork("unknown")


def _any(timeline: Timeline, pattern: re.Pattern[str], *, kernels: bool = False) -> bool:
    frames = [timeline.ops, timeline.ranges, timeline["functions"], *([timeline.kernels] if kernels else [])]
    return any(frame.name.matches(pattern).any() for frame in frames)


def _only_forward(timeline: Timeline) -> bool:
    """Layers with weights and others, no loss at their end, and nothing around them that people wrap to train."""
    ops = timeline.ops.name
    if _any(timeline, names.WRAPPED):
        return False
    has_layers = ops.matches(names.PRODUCT).any() and ops.matches(torch_names.FORWARD_ONLY).any()
    return bool(has_layers and not ops.matches(names.LOSS).any())

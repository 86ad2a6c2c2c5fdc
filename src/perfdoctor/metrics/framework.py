"""Which framework runs the recorded program: PyTorch, JAX, or none?

The one place that decides it: words, rules, fixes and hints ask here.
"""

from __future__ import annotations

import re
from typing import Literal

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.names import frameworks as names
from perfdoctor.vocabulary.names import xla as xla_names

#: `triton` and `cuda`: kernels of the program's own, of Triton's or of CUDA's libraries, and no framework around them.
Framework = Literal["torch", "jax", "triton", "cuda", "unknown"]

#: Sources that name every kernel of a process, whatever framework launched it.
_TOOLS_OF_ANY = frozenset({"nsys", "ncu"})
#: PyTorch is what most people record: a program that names nothing is taken for one.
_MAY_BE_TORCH = ("torch", "unknown")
#: Those of PyTorch itself.
_TORCH_TOOLS = frozenset({"kineto", "memory"})


@once_per_timeline
def framework(timeline: Timeline) -> Framework:
    """What computed, going by the names of kernels, then of ranges and functions.

    JAX programs often load batches with torch's DataLoader: kernels and ops of PyTorch count, its Python does not
    where XLA names itself. A recording of nsys or ncu in which no kernel is PyTorch's is of another program: eager
    PyTorch fills, copies and adds with kernels of its own in every step, compiled PyTorch runs Inductor's. That holds
    only where kernels are named one by one; CUDA graphs that were recorded as a whole may hide any.
    """
    if len(timeline.ops) or _runs(timeline, names.TORCH_KERNEL):
        return "torch"
    if _runs(timeline, xla_names.KERNEL) or _names(timeline, xla_names.RANGE) or _names(timeline, xla_names.FUNCTION):
        return "jax"
    if _names(timeline, names.TORCH) or _is_of_torch(timeline):
        return "torch"
    if not _names_every_kernel(timeline):
        return "unknown"
    is_triton = _runs(timeline, names.TRITON_KERNEL) or _names(timeline, names.TRITON_FUNCTION)
    return "triton" if is_triton else "cuda"


def _runs(timeline: Timeline, pattern: re.Pattern[str]) -> bool:
    return any(frame.name.matches(pattern).any() for frame in (timeline.kernels, timeline["kernel_profiles"]))


def _names(timeline: Timeline, pattern: re.Pattern[str]) -> bool:
    return any(frame.name.matches(pattern).any() for frame in (timeline.ranges, timeline["functions"]))


def _is_of_torch(timeline: Timeline) -> bool:
    """Did PyTorch's own tools write it, or perfdoctor's recorder inside of PyTorch?"""
    kinds = {source.kind for source in timeline.sources}
    return bool(kinds & _TORCH_TOOLS or timeline.steps_marked_by or timeline.loaders)


def _names_every_kernel(timeline: Timeline) -> bool:
    kinds = {source.kind for source in timeline.sources}
    kernels = timeline.kernels
    some = len(kernels) or len(timeline["kernel_profiles"])
    return bool(kinds & _TOOLS_OF_ANY and some and not (len(kernels) and kernels["is_graph"].any()))


def may_be_torch(timeline: Timeline) -> bool:
    """Is it PyTorch, or nothing that is known to be another program?"""
    return framework(timeline) in _MAY_BE_TORCH

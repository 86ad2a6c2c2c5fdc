"""Which copies carry elements that could be half as wide?

By the types of the op that asked for the copy (torch.profiler with record_shapes). Of `aten::copy_` the target's comes
first, and is what crosses the link: torch converts the source where it lies (ATen/native/cuda/Copy.cu). Floats of 32
bits halve as bf16 and those of 64 bits as fp32, integers of 64 bits as int32 up to 2³¹; images of one byte, flags,
16-bit floats and 32-bit integers do not.
"""

from __future__ import annotations

import json

import numpy as np

from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Mask

_HALVES = frozenset({"float", "float32", "double", "float64", "long int", "long", "int64"})


def halvable(place: Place) -> tuple[Mask, Mask]:
    """For each row of `place.copies`: can its elements be half as wide? And is it known whether they can?"""
    op, types = launches_of(place, "copies").enclosing("ops"), place.timeline.ops.text("input_types")
    if not len(types):
        nothing: Mask = np.zeros(op.size, dtype=bool)
        return nothing, nothing
    first = types.mapped(_first_type).take(np.maximum(op, 0))
    asked = op != UNKNOWN
    can: Mask = asked & first.where(lambda name: name in _HALVES)
    known: Mask = asked & ~first.equals("")
    return can, known


def _first_type(types: str) -> str:
    """Of the op's first input, in small letters; "" where it is not recorded."""
    try:
        listed = json.loads(types)
    except ValueError:
        return ""
    return str(listed[0]).casefold() if isinstance(listed, list) and listed else ""

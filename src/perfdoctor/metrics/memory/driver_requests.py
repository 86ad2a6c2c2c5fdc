"""How often does the program ask the driver for memory, and how often does it give memory back?"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from perfdoctor.model.place import Place
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import torch as torch_names


class Requests(Struct, frozen=True):
    """Of one place. `per_tensor`: for each op that allocates or each kernel, whichever are more.

    `returned_share`: calls that free memory for each that asks for it.
    """

    per_step: float
    per_tensor: float
    returned_share: float


def requests(place: Place) -> Requests:
    """In the place's window. Without PyTorch's cache each tensor asks the driver once, and is given back once."""
    calls = _inside(place, "calls", cuda_names.ASKS_FOR_MEMORY)
    freed = _inside(place, "calls", cuda_names.GIVES_MEMORY_BACK)
    tensors = max(_inside(place, "ops", torch_names.ALLOCATES), len(place.kernels))
    return Requests(calls / place.units, calls / max(tensors, 1), freed / max(calls, 1))


def _inside(place: Place, signal: str, pattern: re.Pattern[str]) -> int:
    """How many rows of that name begin in the window."""
    rows = place.timeline[signal].of(rank=place.rank)
    at = rows.named(pattern).start_ns
    return int(np.count_nonzero(place.window.overlap_ns(at, at + 1)))

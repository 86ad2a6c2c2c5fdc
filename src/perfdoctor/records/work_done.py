"""How much did a GPU compute, of what it could? Plain records of it: all that a report may see.

FLOP are those of matrix products, convolutions and fused attention (`metrics/work/flops.py`); per step, or per window
where no steps were found, and per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Ceiling:
    """The peak of one data type, and how many FLOP a byte of memory traffic it takes to reach it (0: not known)."""

    data_type: str
    flop_per_second: float
    ridge_flop_per_byte: float


@dataclass(frozen=True)
class RooflineRow:
    """Work of one kind. None where a number is not known.

    `kind`: family (all of it whose FLOP or bytes are known), op (one op with one set of sizes), or memory (kernels that
    only pass over their numbers, by op). `flop` leaves out what a causal mask spares, `moved_bytes` counts each input
    and each result once: kernels move at least that, so that `share_of_roof` is what the roofline allows, at the least.
    `unknown_ns`: of a family, the time of the kernels about which nothing is known. `limit`: which of the two roofs.
    """

    kind: Literal["family", "op", "memory"]
    name: str
    sizes: str
    kernel: str
    data_type: str
    count: float
    ns: float
    flop: float | None
    moved_bytes: float | None
    flop_per_second: float | None
    flop_per_byte: float | None
    roof_flop_per_second: float | None
    share_of_roof: float | None
    limit: Literal["compute", "memory", ""]
    unknown_ns: float = 0


@dataclass(frozen=True)
class Roofline:
    """The work of one rank and device under the roof of its GPU; rows are a step's, those of most time first.

    `memory_bytes_per_second` is 0, and there are no `ceilings`, where nobody knows the GPU.
    """

    rank: int
    device: int
    gpu: str
    memory_bytes_per_second: float
    ceilings: tuple[Ceiling, ...]
    rows: tuple[RooflineRow, ...]


@dataclass(frozen=True)
class Efficiency:
    """Use of the peak, as means over all places. None where a number is not known.

    MFU = model FLOP ÷ (peak · step), and HFU the same with every FLOP that was computed, also those that were computed
    a second time. `model_from`: where the model's FLOP come from: the ops' shapes, or 6 · parameters · tokens as told.
    `known_share` is the part of the kernels that multiply matrices, by time, whose FLOP are known: below 1 all of this
    is "at least", and below a half MFU and HFU are not told. `peak_flop_per_second` is that of `data_type`, in which
    most was computed. `items`: what a step trains on, tokens (told) or the targets of its loss, per GPU. `lacks`, what
    stands in the way: "shapes", "steps" (for what was told of a step), "peaks" of the GPU, the "data_type", or the peak
    of that type ("type_peak").
    """

    model_from: Literal["shapes", "parameters", ""]
    flop_per_step: float | None
    model_flop_per_step: float | None
    recomputed_flop_per_step: float | None
    known_share: float
    mfu: float | None
    hfu: float | None
    data_type: str
    gpu: str
    peak_flop_per_second: float | None
    peak_source: str
    items: Literal["tokens", "targets", ""]
    items_per_step: float | None
    items_per_second: float | None
    lacks: tuple[str, ...] = ()
    on_gpu: bool = True
    roofline: Roofline | None = None

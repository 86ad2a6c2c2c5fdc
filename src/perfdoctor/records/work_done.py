"""How much of its peak did a GPU compute, and what did each module of the model cost? Records that a report may use.

FLOP are those of matmuls, convolutions and fused attention (`metrics/work/flops.py`); per step (per window where no
steps were found) and per GPU.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Ceiling(Struct, frozen=True):
    """The peak of one data type, and the arithmetic intensity from which on it can be reached (0: unknown)."""

    data_type: str
    flop_per_second: float
    ridge_flop_per_byte: float


class RooflineRow(Struct, frozen=True):
    """Work of one kind. None where a number is unknown.

    `kind`: family (all of it whose FLOP or bytes are known), op (one op with one set of sizes), or memory (memory-bound
    kernels, by op). `flop` excludes what a causal mask skips. `moved_bytes` counts each input and each result once;
    kernels move at least that, so that `share_of_roof` is a lower bound. `unknown_ns`: in a family, the time of kernels
    about which nothing is known. `limit`: which of the two roofs applies; "" also where a cache held the bytes.
    `counted_bytes_per_second`: what the GPU's counters saw its memory move while these kernels ran; bytes that a cache
    holds are not among them.
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
    unknown_ns: int | float = 0
    counted_bytes_per_second: float | None = None

    @property
    def measured_flop_per_byte(self) -> float | None:
        """FLOP for each byte that the memory really moved; None where either is not known."""
        counted = self.counted_bytes_per_second
        return self.flop_per_second / counted if self.flop_per_second and counted else None


class Roofline(Struct, frozen=True):
    """The roofline of one rank and device; rows are per step, longest first.

    If the GPU is unknown, `memory_bytes_per_second` is 0 and `ceilings` is empty.
    """

    rank: int
    device: int
    gpu: str
    memory_bytes_per_second: float
    ceilings: tuple[Ceiling, ...]
    rows: tuple[RooflineRow, ...]


class Efficiency(Struct, frozen=True):
    """Use of the peak, as means over all places. None where a number is unknown.

    MFU = model FLOP ÷ (peak · step); HFU is the same with all computed FLOP, recomputation included. `model_from`: the
    source of the model's FLOP: shapes of ops, or 6 · parameters · tokens (inference: 2 ·) as given by the user.
    `known_share` is the share of the matmul time whose FLOP are known: below 1 all numbers are lower bounds, below 0.5
    MFU and HFU are not reported. `peak_flop_per_second` is that of `data_type`, in which most was computed. `items`:
    what a step trains on, tokens (given by the user) or targets of the loss, per GPU. `lacks`, what is missing for MFU:
    "shapes", "steps" (for tokens per step), "peaks" of the GPU, the "data_type", or the peak of that type
    ("type_peak").
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


class ModuleCost(Struct, frozen=True):
    """One module. All but `depth` are per step (per window where no steps were found) and per rank.

    `path`: from the outermost module, of which the class stands for its name (`GPT.layers.7.attn`); "" for all that
    happened outside of modules. `calls`: of its forward, without those that the backward pass repeats. `own_`: without
    the modules inside; own times of all modules, and of what is outside, sum to the time of all work. `forward_ns` and
    `backward_ns`: of the GPU's work that was launched there, without a GPU of the training thread's ops.
    `model_flop`: as in MFU. `peak_share`: model FLOP ÷ (peak · time on the GPU), None where it is not known.
    `exposed_communication_ns`: of collectives launched in it. `idle_ns`: how long the device did nothing while the
    host was in it.
    """

    path: str
    module_class: str
    depth: int
    calls: float
    own_forward_ns: float
    own_backward_ns: float
    forward_ns: float
    backward_ns: float
    own_model_flop: float
    model_flop: float
    peak_share: float | None
    own_exposed_communication_ns: float
    exposed_communication_ns: float
    own_idle_ns: float
    idle_ns: float

    @property
    def own_ns(self) -> float:
        return self.own_forward_ns + self.own_backward_ns

    @property
    def ns(self) -> float:
        return self.forward_ns + self.backward_ns

"""What would one update of all tensors take, instead of one of each? By passes over memory, and by launches.

```
fused ns = (time beyond starts and ends of the kernels) · passes left + launches · time of a start and end
launches = max(tensors ÷ 36, numbers ÷ (320 · 65,536))
```
A launch of torch's multi-tensor kernels takes at most 36 tensors of four lists (parameters, gradients, two moments), in
at most 320 chunks of 65,536 numbers (aten/src/ATen/native/cuda/MultiTensorApply.cuh: depth_to_max_tensors,
depth_to_max_blocks, kChunkSize): 7,000 million parameters are more than 330 launches.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.work.device_peaks import attained, kernel_floor_ns
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Mask
from perfdoctor.model.place import Place
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names

#: Of one launch.
_TENSORS, _NUMBERS = 36, 320 * 65_536
#: Of a number: parameters and moments are kept in 32 bits.
_BYTES = 4
_CLASS = regex(r"#(\w+)\.step$")
#: An update of fewer different kernels is no Adam's.
_KERNELS_OF_ADAM = 5


class Passes(Struct, frozen=True):
    """Over each parameter: `fewest`, `usual` and `most` by an update of single operations, `fused` by one kernel.

    An operation passes over each tensor that it reads or writes, once. `kernels`: how many the usual update has.
    """

    kernels: int
    fewest: int
    usual: int
    most: int
    fused: int

    @property
    def fuses(self) -> bool:
        """Is there an implementation that fuses them?"""
        return self.fused < self.usual

    def left(self, case: str) -> float:
        """The share of the time of passes that is left when fused, in one of `savings.CASES`."""
        return self.fused / {"low": self.fewest, "likely": self.usual, "high": self.most}[case]


#: Optimizers without a fused implementation: the multi-tensor one makes as many passes, in fewer launches.
_OTHER = Passes(8, 1, 1, 1, 1)
#: By class in lower case: torch/optim, `_single_tensor_*` as of torch 2.5, and ATen/native/cuda/Fused*Kernel.cu.
#: AdamW: p.mul_ 2, m.lerp_ 3, v.mul_ 2, v.addcmul_ 3, sqrt 2, div 2, add_ 2, p.addcdiv_ 4; fused: reads p, g, m, v,
#: writes p, m, v. Adam has no p.mul_, but 3 more with decay; AMSGrad's maximum is 3 more. SGD with momentum: 2 + 3 + 3,
#: with decay 3 more; without momentum there is one operation, and nothing to fuse. Not every Adam of torch has `fused`.
_PASSES = {
    "adamw": Passes(8, 14, 20, 23, 7),
    "adam": Passes(7, 14, 18, 21, 7),
    "sgd": Passes(3, 5, 8, 11, 5),
    "adagrad": Passes(4, 9, 11, 14, 5),
    "adamax": _OTHER,
    "nadam": _OTHER,
    "radam": _OTHER,
}
#: One kernel a tensor is fused already (SGD without momentum): only launches can be saved.
_ONE_KERNEL = Passes(1, 1, 1, 1, 1)


@once_per_place
def passes_of(place: Place) -> Passes | None:
    """The passes of the optimizer that this rank ran, of several the one of which most is left; None if unnamed."""
    rows = (place.timeline[signal].of(rank=place.rank) for signal in ("ranges", "ops"))
    names = {name for frame in rows for name in frame.name.values if torch_names.OPTIMIZER_STEP.search(name)}
    many = (name for name in names if not torch_names.ONLY_PER_TENSOR.search(name))
    classes = [found[1].lower() for name in many if (found := _CLASS.search(name))]
    # One with another name may be an Adam all the same: `FusedAdam`, `MyAdamW`.
    known = [_PASSES.get(name) or (_PASSES["adamw"] if "adam" in name else _OTHER) for name in classes]
    return max(known, key=lambda each: each.left("likely"), default=None)


def passes_alike(different: int) -> Passes:
    """The passes of an unnamed optimizer of so many different kernels or ops; at the least, fusing may save none."""
    alike = _PASSES["adamw" if different >= _KERNELS_OF_ADAM else "sgd"]
    return replace(alike, fewest=alike.fused)


def launches(tensors: float, numbers: float) -> float:
    """The launches of one fused update of so many tensors and numbers."""
    return float(max(np.ceil(tensors / _TENSORS), np.ceil(numbers / _NUMBERS), 1.0))


def _does_all(name: str, known: Passes | None) -> bool:
    """Does the kernel, the only one of the update, do all of it? One of torch's own operations does that for SGD alone;
    where others seem to have no more, names were shortened.
    """
    return known in (None, _PASSES["sgd"]) or not kernel_names.EAGER.search(name)


class FusedUpdate(Struct, frozen=True):
    """What a fused update takes in the window, and its launches a step."""

    ns: float
    launches: float


def fused_update(place: Place, rows: Mask, case: str, floor_ns: float, short_ns: float) -> FusedUpdate:
    """What the updates that these rows of `place.kernels` make would take fused.

    `floor_ns`: start and end of a kernel, unless it was measured on this machine. Kernels of less than `short_ns` may
    be nothing else: in the best case no pass over memory is left of them.
    """
    ns = place.kernel_ns[rows].astype(float)
    different, known = np.unique(place.kernels.name.codes[rows]), passes_of(place)
    passes = known or passes_alike(different.size)
    if different.size == 1 and _does_all(place.kernels.name.values[different[0]], known):
        passes = _ONE_KERNEL
    if not ns.size:
        return FusedUpdate(0.0, 0.0)
    floor, limits = kernel_floor_ns(place, floor_ns), attained(place)
    beyond = np.maximum(ns - floor, 0)
    bandwidth = limits.memory_bytes_per_second if limits else 0.0
    # As many numbers as the memory can have passed over in this time.
    numbers = beyond.sum() / place.units / 1e9 * bandwidth / (_BYTES * passes.usual)
    passing = beyond[ns >= short_ns].sum() if case == "high" else beyond.sum()
    many = launches(ns.size / passes.kernels / place.units, 0.0 if passes is _OTHER else numbers)
    return FusedUpdate(float(passing * passes.left(case) + many * place.units * floor), many)

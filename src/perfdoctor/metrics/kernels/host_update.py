"""What would one fused update of all tensors take on a processor, instead of several ops for each of them?

```
update = calls + passing                 what grows with the number of ops, and what grows with their bytes
fused  = few calls + passes of the fused implementation · bytes of the parameters ÷ rate
```
The rate is one that ops of the same update reached in the same process, with its threads and caches: no data sheet of a
processor is needed. Ops that write in place reach more than those whose result needs new memory, which a fused update
does not have.
"""

from __future__ import annotations

import json

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.grouping import combined
from perfdoctor.metrics.kernels.fused_update import Passes, passes_alike, passes_of
from perfdoctor.metrics.kernels.memory_bandwidth import moved_bytes, tensor_bytes
from perfdoctor.metrics.kernels.optimizer import host_update_rows
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.timeline import Frame

#: Adam begins with an op on a single number, its count of steps: a tenth of the ops take no longer than a call.
_OF_CALLS = 0.1
#: Bytes that are not known for most of the time show nothing.
_KNOWN_SHARE = 0.5
#: Of the rates that ops reached, by their bytes: what is faster was in a cache by chance.
_BEST = 0.9
#: SGD without momentum passes 3 or, with decay, 6 times over a parameter, with momentum at least 8.
_PASSES_WITH_MOMENTUM, _FUSED_WITHOUT_MOMENTUM = 7, 3


class HostUpdate(Struct, frozen=True):
    """An update in the window, in ns: `passing_ns` in ops beyond their calls, and what is left of that when fused.

    `passes` over each parameter, 0 where shapes do not show them; `fused_passes` of the fused implementation;
    `parameter_bytes` of a step. `fuses`: is there more than one op a tensor, and an implementation that fuses them?
    """

    passing_ns: float
    low_ns: float
    likely_ns: float
    high_ns: float
    passes: float
    fused_passes: float
    parameter_bytes: float
    bytes_per_second: float
    fuses: bool

    def left_ns(self, case: str) -> float:
        """What of `passing_ns` is left, in one of `savings.CASES`."""
        return {"low": self.low_ns, "likely": self.likely_ns, "high": self.high_ns}[case]


@once_per_place
def host_update(place: HostPlace, call_ns: float, least_left: float) -> HostUpdate:
    """The update of the training thread.

    `call_ns`: the most that an op takes which has next to nothing to compute. `least_left`: the share of the passing
    time that is left at the least, whatever rate a single op reached.
    """
    update = host_update_rows(place)
    ops = update.ops
    passes = passes_of(place) or passes_alike(np.unique(ops.name.codes).size)
    ns = update.time.overlap_ns(ops.start_ns, ops.end_ns).astype(float)  # in damaged traces they reach beyond it
    if not ns.size:
        return HostUpdate(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, passes.fuses)
    beyond = np.maximum(ns - min(float(np.quantile(ns, _OF_CALLS)), call_ns), 0)
    passing_ns = float(beyond.sum())
    if not passes.fuses:
        return HostUpdate(passing_ns, passing_ns, passing_ns, passing_ns, 0.0, 0.0, 0.0, 0.0, fuses=False)
    tensors = _tensors(ops, place.units)
    known = tensors.moved > 0
    if not tensors.bytes or beyond[known].sum() < _KNOWN_SHARE * passing_ns:
        low, likely = (passing_ns * passes.left(case) for case in ("low", "likely"))
        return HostUpdate(passing_ns, low, likely, min(likely, passing_ns * least_left), 0.0, 0.0, 0.0, 0.0, fuses=True)
    return _by_bytes(ops, beyond, tensors, passes, place.units, least_left)


def _by_bytes(
    ops: Frame, beyond: Floats, tensors: _Tensors, passes: Passes, units: float, least_left: float
) -> HostUpdate:
    """The update by the bytes that it needs, at rates that its own ops reached."""
    passing_ns, moved, rows = float(beyond.sum()), tensors.moved, (tensors.moved > 0) & (beyond > 0)
    recorded = float(moved.sum()) / units / tensors.bytes
    fused = _fused_passes(passes, recorded)
    needed = tensors.bytes * fused * units
    mean = float(moved[rows].sum() / beyond[rows].sum())  # bytes a ns
    in_place = rows & ops.name.where(lambda name: name.endswith("_"))
    usual = float(moved[in_place].sum() / beyond[in_place].sum()) if in_place.any() else mean
    low_ns = min(needed / mean, passing_ns)
    likely_ns = min(low_ns, needed / usual)
    best_ns = needed / _best(moved[rows], beyond[rows])
    high_ns = min(likely_ns, max(best_ns, least_left * passing_ns))
    many = len(ops) / units / tensors.count
    rate = needed / likely_ns * 1e9
    return HostUpdate(passing_ns, low_ns, likely_ns, high_ns, recorded, fused, tensors.bytes, rate, fuses=many >= 2)


def _fused_passes(passes: Passes, recorded: float) -> float:
    is_sgd = passes.fused < passes.usual <= passes_alike(1).usual
    return _FUSED_WITHOUT_MOMENTUM if is_sgd and recorded < _PASSES_WITH_MOMENTUM else passes.fused


def _best(moved: Floats, ns: Floats) -> float:
    """The rate in bytes a ns that ops of a tenth of the bytes exceed."""
    order = np.argsort(moved / ns)
    within = np.cumsum(moved[order]) <= _BEST * moved.sum()
    return float((moved / ns)[order][max(np.count_nonzero(within) - 1, 0)])


class _Tensors(Struct, frozen=True):
    """`moved`: bytes of each op; `bytes` and `count` of the parameters that a step updates."""

    moved: Floats
    bytes: float
    count: float


def _tensors(ops: Frame, units: float) -> _Tensors:
    """The tensors of the ops: of a shape there are as many as its rarest op of every step runs times."""
    shapes, types = ops.text("input_shapes"), ops.text("input_types")
    which, first = combined(ops.name.codes, shapes.codes, types.codes)
    kinds = [(ops.name[row], shapes[row], types[row]) for row in first.tolist()]
    moved = np.array([moved_bytes(*kind) for kind in kinds], dtype=float)
    times: Ints = np.bincount(which, minlength=len(kinds))
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for (name, shape, kind), count in zip(kinds, times.tolist(), strict=True):
        if size := _first(shape, kind):
            of_name = counts.setdefault((json.dumps(json.loads(shape)[0]), size), {})
            of_name[name] = of_name.get(name, 0) + count
    rarest = {
        key: min(often) / units
        for key, by_name in counts.items()
        if (often := [count for count in by_name.values() if count >= units])
    }
    return _Tensors(moved[which], sum(size * many for (_, size), many in rarest.items()), sum(rarest.values()))


def _first(shapes: str, types: str) -> int:
    """Bytes of the first tensor of an op; 0 where it is not known."""
    try:
        return tensor_bytes(json.loads(shapes)[0], json.loads(types)[0])
    except (ValueError, TypeError, IndexError, KeyError):
        return 0

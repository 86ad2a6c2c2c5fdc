"""How many times as fast is a matmul of this size with 16-bit numbers, as measured on this machine?"""

from __future__ import annotations

import numpy as np

from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.metrics.work.device_peaks import measured
from perfdoctor.metrics.work.op_work import op_work
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Floats

_HALF, _WIDE = ("bf16", "fp16"), ("fp32", "tf32")


@once_per_place
def half_speedup(place: Place) -> Floats:
    """One number for each of `place.kernels`; NaN where nothing was measured, or its FLOP or type are not known.

    A product of any shape is taken for the square one with as many FLOP. Convolutions and attention were not measured.
    The user's peaks of one of these types count more than what was measured.
    """
    found = np.full(len(place.kernels), np.nan)
    rates, work = measured(place), op_work(place)
    if rates is None or not len(work.ops) or not place.timeline.user_values.peaks.keys().isdisjoint((*_HALF, *_WIDE)):
        return found
    kernels = np.flatnonzero((work.kernel_op != UNKNOWN) & place.kernel_rows("gemm"))
    op = work.kernel_op[kernels]
    flop = np.where(work.known[op], work.needed_flop[op], np.nan)
    for wide in _WIDE:
        sizes, ratios = _ratios(rates, wide)
        of_type = (work.data_types[op] == wide) & (flop > 0)
        if sizes.size:
            squares = np.cbrt(flop[of_type] / 2)
            found[kernels[of_type]] = np.exp(np.interp(np.log(squares), np.log(sizes), np.log(ratios)))
    return found


def _ratios(rates: MeasuredRates, wide: str) -> tuple[Floats, Floats]:
    """Sizes of square matrices, ascending, and the faster 16-bit rate over that of the wide type."""
    half: dict[int, float] = {}
    for data_type in _HALF:
        for size, rate in rates.matmuls(data_type):
            half[size] = max(half.get(size, 0.0), rate)
    both = [(size, half[size] / rate) for size, rate in rates.matmuls(wide) if size and size in half]
    return np.array([size for size, _ in both], dtype=float), np.array([ratio for _, ratio in both], dtype=float)

"""How long would each product of matrices take if it read numbers of 16 bits?

```
time = start + max(FLOP ÷ (rate of 16-bit units · share of the SMs), bytes ÷ bandwidth)      never longer than before
FLOP = by the shapes of its op; where these are not known: its own time · rate of the units it ran on · share of the SMs
```

The roofline of one kernel (Williams, Waterman, Patterson: CACM 52(4), 2009). Rates are what the machine reached when it
was measured, else the share of the data sheet's that products reach. A kernel on CUDA cores that is long enough to be
worth a word runs near their peak, so that its time says its FLOP. How many SMs have a tile to compute, and in how many
waves, follows from the size of the result (NVIDIA, Matrix Multiplication Background User's Guide, "Dimension
Quantization Effects"); without shapes from the kernel's grid and the tile in its name.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfdoctor.hardware.measured import MeasuredRates
from perfdoctor.hardware.peaks import half_speedups
from perfdoctor.metrics.counters.kinds import of_names
from perfdoctor.metrics.kernels.profiles import TENSOR_CORES_SINCE, off_tensor_cores, on_tensor_cores
from perfdoctor.metrics.work.device_peaks import kernel_floor_ns, measured, peaks
from perfdoctor.metrics.work.op_work import op_work
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import Floats, Ints, Mask
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN
from perfdoctor.patterns import regex
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names

#: Elements of a tile in which libraries compute a product, and how often it uses each number that it has read, compared
#: with the first: sides a, b of a tile use it a · b ÷ (a + b) times.
_TILES = ((128 * 128, 1.0), (128 * 64, 2 / 3), (64 * 64, 1 / 2))
#: Where tiles are too few for the SMs, the sum over the inner dimension is divided; a part is no shorter than this.
_SHORTEST_PART = 512
_HALF, _WIDE, _HALF_BYTES = ("bf16", "fp16"), ("fp32", "tf32"), 2
_WIDE_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4}
#: From this share of the instructions that SMs can issue on, arithmetic limits a kernel: products in fp32 of an A100
#: show 40 to 80 %, kernels that wait for memory 5 to 40 %. And from this share of the peak on the memory does.
_COMPUTES, _MEMORY_LIMITS = 0.4, 0.6
_TILE_IN_NAME = regex(r"(?<!\d)(\d{2,3})x(\d{2,3})(?!\d)")


class ReachedRates(Struct, frozen=True):
    """Shares of the data sheet's rates that are reached (0-1): by products in 16 bits, in TF32, of wider numbers on
    other units; of the bandwidth by kernels that only move numbers, and by products. `of_measured`: the same for
    16-bit rates that were measured.
    """

    half: float
    tf32: float
    wide: float
    memory: float
    memory_of_products: float
    of_measured: float = 1.0


# --- which kernels ---------------------------------------------------------------------------------------------------


@once_per_place
def wide_products(place: Place) -> Mask:
    """One bool a kernel: does it multiply matrices of 32 or 64 bits? By its name, or by what the counters saw of it."""
    types = place.kernels.name.has(_matrix_type, *_WIDE_BYTES)
    return (types | counted_wide(place)) & place.kernel_rows(*MATMUL_FAMILIES)


@once_per_place
def counted_wide(place: Place) -> Mask:
    """One bool a kernel: a product whose name has no type, that keeps the SMs at work and uses no tensor cores?

    Libraries multiply narrower numbers on tensor cores, unless a product is so thin that the memory limits it.
    """
    issue, dram = (of_names(place, place.kernels.name, column) for column in ("sm_issue_share", "dram_share"))
    plain = place.kernels.name.has(_matrix_type, "unknown") & place.kernel_rows("gemm", "convolution")
    computing = (issue >= _COMPUTES) & ~(dram > _MEMORY_LIMITS)
    return plain & computing & off_tensor_cores(place) & (place.info.compute_capability >= TENSOR_CORES_SINCE)


@once_per_place
def wide_rows(place: Place) -> Ints:
    """The rows of `place.kernels` that are these products, ascending."""
    return np.flatnonzero(wide_products(place))


@once_per_place
def half_products(place: Place) -> Mask:
    """One bool a kernel: does it multiply matrices of 16 bits or fewer?"""
    return place.kernels.name.has(_matrix_type, "half") & place.kernel_rows(*MATMUL_FAMILIES)


@once_per_place
def tf32_products(place: Place) -> Mask:
    """One bool a kernel: is it a product in TF32, by its name or, as tensor cores take no plain fp32, by their use?"""
    named, seen = (place.kernels.name.has(_matrix_type, each) for each in ("tf32", "fp32"))
    return wide_products(place) & (named | (seen & on_tensor_cores(place)))


def _matrix_type(name: str) -> str:
    """The type that a product reads; "" with a vector or for a single channel, which gain nothing from tensor cores."""
    is_other = kernel_names.is_vector_product(name) or kernel_names.is_depthwise(name)
    return "" if is_other else kernel_names.input_type(name)


# --- how much each of them computes ----------------------------------------------------------------------------------


class ProductSizes(Struct, frozen=True):
    """The size of each product of `wide_rows`; NaN where it is not known.

    `flop`; `results`, how many numbers it writes; `inputs`, how many its op reads.
    """

    flop: Floats
    results: Floats
    inputs: Floats


@once_per_place
def sizes(place: Place, reached: ReachedRates) -> ProductSizes:
    """The sizes by the op, else by the kernel's own time, its grid and the tile in its name.

    Of a product of unknown sides the square one is taken: no other of as many FLOP and results reads fewer numbers.
    """
    rows = wide_rows(place)
    work, seconds = op_work(place), place.kernels.duration_ns[rows] / 1e9
    flop, results, inputs = (np.full(rows.size, np.nan) for _ in range(3))
    by_shapes = np.zeros(rows.size, dtype=bool)
    if len(work.ops):
        of_kernel = work.kernel_op[rows]
        op = np.maximum(of_kernel, 0)
        known = (of_kernel != UNKNOWN) & work.known[op] & (work.needed_flop[op] > 0) & (work.ns[op] > 0)
        part = np.where(known, place.kernel_ns[rows] / np.maximum(work.ns[op], 1), 0.0)
        by_shapes = known & (part > 0)
        flop = np.where(by_shapes, work.needed_flop[op] * part, np.nan)
        results = np.where(by_shapes, work.results[op] * part, np.nan)
        moved = np.where(by_shapes, work.moved_bytes[op] * part, np.nan) / _of_type(place, _WIDE_BYTES)
        inputs = np.where(np.isnan(results), moved, moved - results)
    by_time = ~by_shapes
    rates = _of_type(place, {kind: _rate(place, kind, reached.wide) for kind in _WIDE_BYTES})
    rates = np.where(tf32_products(place)[rows], _rate(place, "tf32", reached.tf32), rates)
    estimated = seconds * rates * _share_of_sms(place)
    flop = np.where(by_time, estimated, flop)
    results = np.where(by_time, _grid_results(place), results)
    side = np.where(np.isnan(results), np.cbrt(flop / 2), np.sqrt(results))
    square = 2 * side * np.where(np.isnan(results), side, flop / (2 * results))
    inputs = np.where(np.isnan(inputs), square, inputs)
    results = np.where(by_time & np.isnan(results), side**2, results)
    return ProductSizes(flop, results, inputs)


def _of_type(place: Place, values: dict[str, int] | dict[str, float]) -> Floats:
    """A number for each of `wide_rows` by the type that its name says."""
    names = place.kernels.name.take(wide_rows(place))
    found = np.full(len(names), np.nan)
    for kind, value in values.items():
        found[names.has(_matrix_type, kind)] = value
    found[counted_wide(place)[wide_rows(place)]] = values["fp32"]  # fp64 is slower still, and rare
    return found


def _share_of_sms(place: Place) -> Floats:
    """The share of the SMs that each of `wide_rows` keeps at work: as counters measured, else the share of its waves of
    blocks that it fills; 1 where grid or GPU are not known.
    """
    rows = wide_rows(place)
    sms, blocks = _sm_count(place), place.kernels["blocks"][rows]
    by_grid = np.where(blocks > 0, _wave_share(np.maximum(blocks, 1), sms), 1.0) if sms else np.ones(len(blocks))
    counted = of_names(place, place.kernels.name, "sm_active_share")[rows]
    return np.where(np.isnan(counted), by_grid, counted)


def _wave_share(tiles: Floats, sms: int) -> Floats:
    waves = tiles / sms
    return waves / np.ceil(waves)


def _grid_results(place: Place) -> Floats:
    """How many numbers each of them writes, by its blocks and the tile in its name; NaN where either is not known."""
    area = place.kernels.name.take(wide_rows(place)).numbers(_tile_area)
    blocks = place.kernels["blocks"][wide_rows(place)]
    return np.where((area > 0) & (blocks > 0), area * blocks, np.nan)


def _tile_area(name: str) -> int:
    found = _TILE_IN_NAME.search(name)
    return int(found[1]) * int(found[2]) if found else 0


def _sm_count(place: Place) -> int:
    known = peaks(place)
    return place.info.sm_count or (known.sm_count if known else 0)


# --- how long they would take ----------------------------------------------------------------------------------------


def half_ns(place: Place, reached: ReachedRates, case: str) -> Floats:
    """For each of `place.kernels`, in ns inside the window: a product of wide numbers as in 16 bits, others as now.

    `case`: low, likely or high, of savings. Where the GPU is not known, its ratio of rates is taken from those of all
    GPUs in the table: that which most exceed, the middle one, or that which few do.
    """
    rows, rate = wide_rows(place), half_rate(place, reached)
    now = place.kernels.duration_ns[rows].astype(float)
    if not rate:  # how many times as fast 16 bits are on a GPU of which nothing is known
        ratios = _of_type(place, {kind: half_speedups(kind)[case] for kind in _WIDE_BYTES})
        left = now / np.where(tf32_products(place)[rows], half_speedups("tf32")[case], ratios)
    else:
        left = kernel_floor_ns(place) + 1e9 * np.fmax(*_seconds(place, reached, rate))
    shorter = np.fmin(left, now) / np.maximum(now, 1.0)
    inside: Floats = place.kernel_ns.astype(float)
    inside[rows] *= shorter
    return inside


def _seconds(place: Place, reached: ReachedRates, rate: float) -> tuple[Floats, Floats]:
    """Seconds that each product takes by its FLOP, and by its bytes."""
    size = sizes(place, reached)
    computing = size.flop / (rate * _filled(size, _sm_count(place)))
    rows = wide_rows(place)
    as_measured = place.kernels.duration_ns[rows] / 1e9 / (half_speedup(place)[rows] * reached.of_measured)
    computing = np.where(np.isnan(as_measured), computing, as_measured)
    bandwidth = memory_rate(place, reached.memory) * reached.memory_of_products / reached.memory
    numbers = size.inputs + np.nan_to_num(size.results)  # read and written, each once
    moving = numbers * _HALF_BYTES / bandwidth if bandwidth else np.full(rows.size, np.nan)
    return computing, moving


def _filled(size: ProductSizes, sms: int) -> Floats:
    """The share of their rate at which the SMs compute each product, in the tile with which they are fastest."""
    if not sms:
        return np.ones(len(size.flop))
    best = np.zeros(len(size.flop))
    inner = size.flop / (2 * size.results)  # over how many numbers each result is a sum
    parts = np.maximum(np.floor(np.nan_to_num(inner) / _SHORTEST_PART), 1)
    for area, reuse in _TILES:
        tiles = np.maximum(np.ceil(np.nan_to_num(size.results) / area), 1)
        tiles *= np.clip(np.floor(sms / tiles), 1, parts)
        best = np.maximum(best, reuse * _wave_share(tiles, sms))
    return np.where(np.isnan(size.results), 1.0, best)  # not known: convolutions, attention


def half_rate(place: Place, reached: ReachedRates) -> float:
    """FLOP/s of large products in 16 bits; 0 where the GPU is not known."""
    known = max(_known(place).get(kind, 0.0) for kind in _HALF)
    return known * reached.of_measured or max(_rate(place, kind, reached.half) for kind in _HALF)


def memory_rate(place: Place, share: float) -> float:
    """Bytes/s that kernels reach; 0 where the GPU is not known."""
    sheet = peaks(place)
    return _known(place).get("memory", 0.0) or (sheet.memory_bytes_per_second * share if sheet else 0.0)


def _rate(place: Place, kind: str, share: float) -> float:
    """FLOP/s in products of this type: as measured or given by the user, else a share of the data sheet's."""
    sheet = peaks(place)
    return _known(place).get(kind, 0.0) or (sheet.matmul_flop_per_second(kind) * share if sheet else 0.0)


def _known(place: Place) -> dict[str, float]:
    """The rates that were measured or that the user gave, by name; the user's count more."""
    rates = measured(place)
    return {**(rates.as_peaks() if rates else {}), **place.timeline.user_values.peaks}


@once_per_place
def half_speedup(place: Place) -> Floats:
    """How many times as fast each of `place.kernels` is with 16-bit numbers, as measured on this machine.

    NaN where nothing was measured, or its FLOP or type are not known. A product of any shape is taken for the square
    one with as many FLOP. Convolutions and attention were not measured. The user's peaks of one of these types count
    more than what was measured.
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

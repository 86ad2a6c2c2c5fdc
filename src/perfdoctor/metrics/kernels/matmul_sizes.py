"""Which sizes did a matmul have, and which of them keep it from reading its numbers in whole pieces?

Tensor cores are fed 16 bytes at a time: 16 numbers of 8 bits, 8 of 16, 4 of 32. Where a row begins at no multiple of
that, the library takes a kernel built for fewer numbers at once, and its name says so (`align1`, `align2`). On 8 bits
few libraries have one: `torch._scaled_mm` and Transformer Engine refuse widths that are no multiples of 16.
"""

from __future__ import annotations

import json
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.kernels.profiles import TENSOR_CORES_SINCE, off_tensor_cores, on_tensor_cores
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import named
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Mask
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names

#: Numbers in 16 bytes, by the type of the inputs. Types of 8 bits count among "half" by their name's type alone.
WHOLE_PIECE = {"half": 8, "tf32": 4}
#: What tensor cores read at once, of each row of a factor.
_WHOLE_PIECE_OF_BYTES = 16
#: Where the two factors stand among an op's inputs.
_FACTORS = {"aten::addmm": 1, "aten::baddbmm": 1, "aten::convolution_backward": 1}


class MatmulSizes(Struct, frozen=True):
    """One op with one set of sizes, as its kernels ran in the window. `piece`: numbers in 16 bytes."""

    op: str
    dimensions: tuple[int, ...]
    piece: int
    count: int
    total_ns: int


class Misaligned(Struct, frozen=True):
    """The kernels of a place that misaligned sizes slow down, and the sizes, the costliest first.

    `without`: those of them that use no tensor cores at all. `padding`, one a kernel: by what factor the arithmetic
    grows when the sizes are padded; 1 where they are not known.
    """

    rows: Mask
    without: Mask
    padding: Floats
    sizes: tuple[MatmulSizes, ...]


@once_per_place
def misaligned_matmuls(place: Place) -> Misaligned:
    """Kernels that their names say are built for misaligned rows; on 16 bits also those that misaligned sizes keep off
    tensor cores.
    """
    kernels = place.kernels
    matmul = place.kernel_rows(*MATMUL_FAMILIES)
    rows, without = matmul & kernels.name.where(_is_misaligned), np.zeros(len(kernels), dtype=bool)
    # What was measured counts more than a name.
    off = (kernels.name.where(_leaves_tensor_cores_out) & ~on_tensor_cores(place)) | off_tensor_cores(place)
    off = off & matmul & kernels.name.where(_could_use) & (place.info.compute_capability >= TENSOR_CORES_SINCE)
    padding, found = np.ones(len(kernels)), []
    if (rows | off).any():
        ops = place.timeline.ops
        op = launches_of(place, "kernels").outermost("ops", named(place.timeline, "ops", torch_names.MATMUL))
        known = np.flatnonzero((rows | off) & (op >= 0))
        shapes = ops.text("input_shapes")
        pieces = kernels.name.numbers(_piece)
        keys = np.stack((ops.name.codes[op[known]], shapes.codes[op[known]], pieces[known], off[known]), axis=1)
        for key in np.unique(keys, axis=0):
            same = known[(keys == key).all(axis=1)]
            name, piece = ops.name.values[key[0]], int(key[2])
            dimensions = sizes(name, shapes.values[key[1]])
            if key[3] and not any(size % piece for size in dimensions):
                continue  # the sizes are not why it uses none
            without[same] = key[3]
            padding[same] = prod(padded(size, piece) / size for size in dimensions if size > 0)
            found.append(MatmulSizes(name, dimensions, piece, int(same.size), int(place.kernel_ns[same].sum())))
    return Misaligned(rows | without, without, padding, tuple(sorted(found, key=lambda each: -each.total_ns)))


@lru_cache(maxsize=65536)
def _piece(name: str) -> int:
    """How many of the kernel's numbers tensor cores read at once; 0 where its type is unknown."""
    piece = WHOLE_PIECE.get(kernel_names.input_type(name), 0)
    return _WHOLE_PIECE_OF_BYTES if piece == WHOLE_PIECE["half"] and kernel_names.is_product_of_bytes(name) else piece


def _is_misaligned(name: str) -> bool:
    return 0 < kernel_names.alignment(name) < _piece(name) and kernel_names.math_path(name) == "tensor_core"


def _leaves_tensor_cores_out(name: str) -> bool:
    return kernel_names.math_path(name) == "no_tensor_core"


def _could_use(name: str) -> bool:
    """Is it a product of 16 bits that gains from tensor cores?"""
    is_other = kernel_names.is_vector_product(name) or kernel_names.is_depthwise(name)
    return kernel_names.input_type(name) == "half" and not is_other


@lru_cache(maxsize=65536)
def sizes(op: str, shapes: str) -> tuple[int, ...]:
    """(M, N, K) of a matmul, (input channels, output channels) of a convolution; () where they were not recorded."""
    try:
        first, second = json.loads(shapes)[_FACTORS.get(op, 0) :][:2]
        if "convolution" in op:
            return int(first[1]), int(second[0])
        return int(first[-2]), int(second[-1]), int(first[-1])
    except (ValueError, TypeError, IndexError, KeyError):
        return ()


def padded(size: int, piece: int) -> int:
    """The next multiple of `piece`."""
    return -(-size // piece) * piece

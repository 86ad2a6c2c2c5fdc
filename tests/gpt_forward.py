"""The forward pass of a GPT in fp32 on one A100, drawn from its shapes: what torch.profiler and nsys would record of it.

Products run at the rate that sgemm reaches, all else at the pace of the memory; then everything that is no product is
stretched until the step takes as long as it was measured. The host takes the same for each op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from generate import LAUNCH_NS, US, Rank

from perfdoctor.metrics.accounting.real_time import LEAST_EVENT_NS_WITH_DEVICE

#: FLOP/s of large sgemms on an A100 (peak 19.5e12), and bytes/s of its memory (peak 2.039e12).
SGEMM_RATE, MEMORY_RATE = 17e12, 1.75e12
START_NS = 2_000
#: An op and its launch are recorded.
ROWS_OF_OP = 2
BATCH, VOCABULARY = 4, 10_000
SIZES = {"small": (12, 768, 12), "medium": (24, 1024, 16), "large": (36, 1280, 20), "xl": (48, 1600, 25)}
NATIVE = "void at::native::"


@dataclass(frozen=True)
class Op:
    """One op with one kernel: its name, the kernel's, the shapes of its inputs, FLOP, bytes and blocks."""

    name: str
    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    moved: int
    flop: int = 0

    @property
    def ns(self) -> float:
        return START_NS + 1e9 * max(self.flop / SGEMM_RATE, self.moved / MEMORY_RATE)


def product(name: str, *shapes: tuple[int, ...], tile: str = "128x64") -> Op:
    first, second = shapes[-2:]
    rows, inner, columns, count = first[-2], first[-1], second[-1], prod(first[:-2])
    moved = 4 * count * (rows * inner + inner * columns + rows * columns)
    return Op(name, f"ampere_sgemm_{tile}_tn", shapes, moved, 2 * count * rows * inner * columns)


def elementwise(name: str, functor: str, *shapes: tuple[int, ...]) -> Op:
    kernel = f"{NATIVE}vectorized_elementwise_kernel<4, at::native::{functor}, std::array<char*, 3ul> >(int)"
    return Op(name, kernel, shapes, 4 * (sum(map(prod, shapes)) + max(map(prod, shapes))))


def reduction(name: str, functor: str, shape: tuple[int, ...]) -> Op:
    kernel = (
        f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::{functor}, unsigned int, float, 4> >"
    )
    return Op(name, kernel, (shape,), 4 * prod(shape))


def copy(shape: tuple[int, ...]) -> Op:
    kernel = (
        f"{NATIVE}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::lambda()>"
    )
    return Op("aten::copy_", kernel, (shape, shape), 8 * prod(shape))


def rms_norm(shape: tuple[int, ...]) -> Iterator[Op]:
    yield elementwise("aten::pow", "(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>", shape)
    yield reduction("aten::mean", "MeanOps<float, float, float, float>", shape)
    yield elementwise("aten::add", "CUDAFunctorOnSelf_add<float>", (*shape[:-1], 1))
    yield elementwise("aten::rsqrt", "rsqrt_kernel_cuda(at::TensorIteratorBase&)", (*shape[:-1], 1))
    yield elementwise("aten::mul", "BinaryFunctor<float, float, float, at::native::MulFunctor<float>>", shape, shape)
    yield elementwise("aten::mul", "BinaryFunctor<float, float, float, at::native::MulFunctor<float>>", shape)


def softmax(shape: tuple[int, ...]) -> Iterator[Op]:
    yield reduction("aten::amax", "MaxNanFunctor<float>", shape)
    yield elementwise("aten::sub", "CUDAFunctor_sub<float>", shape)
    yield elementwise("aten::exp", "exp_kernel_cuda(at::TensorIteratorBase&)", shape)
    yield reduction("aten::sum", "func_wrapper_t<float, at::native::sum_functor<float, float, float>>", shape)
    yield elementwise("aten::div", "BinaryFunctor<float, float, float, at::native::DivFunctor<float>>", shape)


def layer(tokens: int, context: int, width: int, heads: int) -> Iterator[Op]:
    """Norms, softmax and a gated feed-forward layer written out op by op."""
    flat, head = (tokens, width), width // heads
    stacked, scores = (BATCH * heads, context, head), (BATCH * heads, context, context)
    mul = "BinaryFunctor<float, float, float, at::native::MulFunctor<float>>"
    yield from rms_norm(flat)
    for _ in range(3):
        yield product("aten::mm", flat, (width, width))
    for _ in range(3):
        yield copy(stacked)
    yield product("aten::bmm", stacked, (BATCH * heads, head, context))
    yield elementwise("aten::div", "BUnaryFunctor<float, float, float, at::native::MulFunctor<float>>", scores)
    yield elementwise("aten::where", "masked_fill_kernel_impl<float>", scores)
    yield from softmax(scores)
    yield product("aten::bmm", scores, stacked)
    yield copy(flat)
    yield product("aten::mm", flat, (width, width))
    yield elementwise("aten::add", "CUDAFunctor_add<float>", flat, flat)
    yield from rms_norm(flat)
    wide = (tokens, 4 * width)
    yield product("aten::mm", flat, (width, 4 * width))
    yield elementwise("aten::sigmoid", "sigmoid_kernel_cuda(at::TensorIteratorBase&)", wide)
    yield elementwise("aten::mul", mul, wide, wide)
    yield product("aten::mm", flat, (width, 4 * width))
    yield elementwise("aten::mul", mul, wide, wide)
    yield product("aten::mm", wide, (4 * width, width))
    yield elementwise("aten::add", "CUDAFunctor_add<float>", flat, flat)


def forward(size: str, context: int) -> list[Op]:
    layers, width, heads = SIZES[size]
    tokens = BATCH * context
    found = [elementwise("aten::embedding", "(anonymous namespace)::indexSelectLargeIndex<float>", (tokens, width))]
    for _ in range(layers):
        found += layer(tokens, context, width, heads)
    found += rms_norm((tokens, width))
    return [*found, product("aten::mm", (tokens, width), (width, VOCABULARY))]


def recorded(ops: list[Op], step_ns: float, host_ns: float, steps: int = 5) -> Rank:
    """Steps that each end with a wait for the device, and take about `step_ns`.

    The host takes `host_ns` for an op where the device is slower than it, and what the recorder adds for the op and its
    launch; else as long as makes the step what it is.
    """
    products = sum(op.ns for op in ops if op.flop)
    others = sum(op.ns for op in ops if not op.flop)
    of_device = len(ops) * host_ns < step_ns
    stretch = max((step_ns - products) / others, 0.3) if of_device else 1.0
    each = host_ns + ROWS_OF_OP * LEAST_EVENT_NS_WITH_DEVICE if of_device else step_ns / len(ops)
    rank = Rank()
    for number in range(steps):
        begin = rank.begin_step()
        for op in ops:
            overhead = round(each) - LAUNCH_NS - 1 * US
            rank.launch(op.kernel, round(op.ns * (1 if op.flop else stretch)), overhead=overhead, blocks=_blocks(op))
            types = ["float"] * len(op.shapes)
            rank.ops[-1] |= {"name": op.name, "shapes": [list(shape) for shape in op.shapes], "types": types}
        rank.synchronize()
        rank.close(begin, f"ProfilerStep#{number + 10}")
    return rank


def _blocks(op: Op) -> int:
    if not op.flop:
        return max(max(map(prod, op.shapes)) // 512, 1)
    first, second = op.shapes[-2:]
    return prod(first[:-2]) * -(-first[-2] // 128) * -(-second[-1] // 64)

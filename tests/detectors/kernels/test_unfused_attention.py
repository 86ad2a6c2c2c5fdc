"""unfused-attention: product, softmax, product, each with kernels of its own."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary, timeline

from perfdoctor.model.timeline import Device
from perfdoctor.records.savings import Saving

SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, {}, {}, false>(float*, float const*, int)"
)
GRADIENT = "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, false, false>(float*)"
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, at::detail::Array<char*, 3>>(int)"
)
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::{}<float>, unsigned int>>(R)"
NAMES = {
    "s": SOFTMAX.format(10, "false"),
    "l": SOFTMAX.format(10, "true"),
    "b": GRADIENT,
    "m": ELEMENTWISE.format("MulFunctor"),
    "a": ELEMENTWISE.format("AddFunctor"),
    "x": "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase&)>(int)",
    "+": REDUCE.format("sum_functor"),
    "M": REDUCE.format("MaxOps"),
    "o": "void at::native::vectorized_elementwise_kernel<4, at::native::log_kernel_cuda(at::TensorIteratorBase&)>(int)",
    "t": "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(float)",
    "g": "some_kernel",
}


def step(between: str, *, of: int = 40, behind: str = "G", **more):
    """A step of `of` units that computes all the time: a product, what lies between, a product; other work around."""
    start = "gG" + between + behind
    picture = {
        "kernels": start + "g" * (of - len(start)),
        "kernel_names": NAMES,
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_scores_are_written_to_memory():
    ratios = {"fused_to_products_low": 1.5, "fused_to_products_likely": 1.0, "fused_to_products_high": 0.5}
    finding = only_finding("unfused-attention", step("mmaassssss"), **ratios)
    # scale, mask and softmax, a millisecond together, in a step of four; two products of 100 µs
    assert finding.values == {
        **finding.values,
        "times_per_step": 1.0,
        **of_step("between", 1.0, 4.0),
        "attention_ms": pytest.approx(1.2),
        "fused_ms": pytest.approx(0.2),
    }
    assert finding.saving_ns_per_step == Saving(900_000, 1_000_000, 1_100_000)
    assert finding.confidence == "medium"
    assert "1 times a step attention runs as matmul, softmax, matmul" in summary(finding)


def test_it_fires_on_the_gradient():
    assert only_finding("unfused-attention", step("bbbbm")).values["between_ms"] == pytest.approx(0.5)


def test_it_fires_where_the_softmax_is_written_in_single_operations():
    finding = only_finding("unfused-attention", step("mMaxx+m"))
    assert finding.values["between_ms"] == pytest.approx(0.7)


def test_the_number_is_that_of_a_count_by_hand():
    """Two layers of 3 and 4 units and a loss: 700 µs of 4 ms."""
    finding = only_finding("unfused-attention", step("mss", behind="GgGmssmGggGlooG"))
    assert (finding.values["times_per_step"], finding.values["between_ms"]) == (2.0, pytest.approx(0.7))


def test_it_stays_silent_just_below_the_threshold():
    assert findings("unfused-attention", step("s", of=51), fused_to_products_likely=1.0) == []  # 1.96 %
    assert len(findings("unfused-attention", step("s", of=49), fused_to_products_likely=1.0)) == 1  # 2.04 %


@pytest.mark.parametrize(
    ("between", "why"),
    [
        ("llllll", "a loss takes the logarithm"),
        ("Mxx+oooo", "and so it does in single operations"),
        ("sssmmmbbb", "softmax and its gradient without a product between them: an output layer"),
        ("ssssstt", "a router picks experts"),
        ("sssggg", "something unknown stands between"),
        ("mmmaaa", "no softmax at all"),
        ("xxxmmm", "exponentials without a sum"),
        ("msmamamamamamama", "more than an attention has"),
    ],
)
def test_it_stays_silent_where_it_is_no_attention(between, why):
    assert findings("unfused-attention", step(between)) == [], why


def test_it_stays_silent_where_no_product_follows():
    assert findings("unfused-attention", step("ssssss", behind="gggg", repeat=1)) == []


def test_it_stays_silent_where_a_fused_kernel_does_it():
    assert findings("unfused-attention", step("FFFFFF")) == []


def products(op: str):
    """The same, with the ops that launched the two products."""
    host = ["lllll", "o" + op + "e" * 2 + op]
    return step("mm" + "ssssss", host=host, launched_us_before=None, legend={
        "y": ("ops", "aten::bmm"), "z": ("ops", "aten::mm"), "e": ("ops", "aten::softmax"),
    })  # fmt: skip


def test_where_ops_tell_the_products_must_be_batched():
    finding = only_finding("unfused-attention", products("y"))
    assert finding.confidence == "medium"  # their sizes were not recorded


def test_it_stays_silent_where_ops_tell_of_plain_products():
    """A gate: a layer, a softmax over its outputs, a layer."""
    assert findings("unfused-attention", products("z")) == []


BF16 = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
HALF_SOFTMAX = "void (anonymous namespace)::softmax_warp_{}<c10::BFloat16, c10::BFloat16, float, 11, false, false>(int)"
MASK = "void at::native::vectorized_elementwise_kernel<4, at::native::masked_fill_kernel<float>, std::array<char*, 3>>(int)"


def sized(*ops: tuple[str, str, str, int], gpu: str = "NVIDIA A100-SXM4-80GB"):
    """Ops one behind the other, each launching one kernel: its name, the op's, its shapes, µs."""
    kernels, calls, rows, at = [], [], [], 0
    for number, (kernel, op, shapes, us) in enumerate(ops):
        host, end = 100 * number, at + us * 1000
        kernels.append({"start_ns": at, "end_ns": end, "name": kernel, "correlation": number, "process": 1})
        calls.append({"start_ns": host + 10, "end_ns": host + 20, "name": "cudaLaunchKernel", "correlation": number,
                      "process": 1})  # fmt: skip
        rows.append({"start_ns": host, "end_ns": host + 50, "name": op, "input_shapes": shapes, "process": 1})
        at = end
    return timeline(kernels=kernels, calls=calls, ops=rows, devices=[Device(0, 0, gpu, compute_capability=(8, 0))])


SCORES = (BF16, "aten::bmm", "[[512, 2048, 64], [512, 64, 2048]]", 2_500)
RESULT = (BF16, "aten::bmm", "[[512, 2048, 2048], [512, 2048, 64]]", 2_500)
#: 2 · 2 · 512 · 2,048² · 64 FLOP at 162 TFLOP/s forward (arXiv 2307.08691, Figure 4); 2.5 times as many backward.
FORWARD_NS = 4 * 512 * 2048**2 * 64 / 162e12 * 1e9


def test_where_sizes_are_known_the_fused_kernel_takes_what_was_published():
    softmax = (HALF_SOFTMAX.format("forward"), "aten::_softmax", "[[512, 2048, 2048]]", 5_000)
    finding = only_finding("unfused-attention", sized(SCORES, softmax, RESULT))
    assert finding.saving_ns_per_step.likely == pytest.approx(10_000_000 - FORWARD_NS, rel=1e-6)
    assert finding.confidence == "high"
    assert finding.saving_ns_per_step.low < finding.saving_ns_per_step.likely
    (table,) = (each for each in finding.evidence if each.label == "Attentions by size, a step")
    (row,) = table.rows
    assert row[:4] == ("512 × 2048 × 2048 × 64", "forward", 1.0, 10_000_000)
    assert row[4] == pytest.approx(FORWARD_NS, abs=1)
    assert "arXiv 2307.08691" in row[5]


def test_a_gradient_has_four_products_and_the_fused_kernel_five():
    """Of the result's two factors before the softmax's gradient, of the scores' two behind it, in any order."""
    values = (BF16, "aten::bmm", "[[512, 2048, 2048], [512, 2048, 64]]", 2_500)
    softmax = (HALF_SOFTMAX.format("backward"), "aten::_softmax_backward_data", "[[512, 2048, 2048]]", 7_000)
    rest = ("some_kernel", "aten::add", "", 10_000)
    finding = only_finding("unfused-attention", sized(SCORES, values, softmax, RESULT, RESULT, rest))
    assert finding.saving_ns_per_step.likely == pytest.approx(17_000_000 - 2.5 * FORWARD_NS, rel=1e-6)


def test_a_mask_may_be_causal_at_the_most():
    softmax = (HALF_SOFTMAX.format("forward"), "aten::_softmax", "[[512, 2048, 2048]]", 5_000)
    mask = (MASK, "aten::masked_fill", "[[512, 2048, 2048]]", 3_000)
    finding = only_finding("unfused-attention", sized(SCORES, mask, softmax, RESULT))
    assert finding.saving_ns_per_step.likely == pytest.approx(13_000_000 - FORWARD_NS, rel=1e-6)
    causal = 2 * 512 * 2048**2 * 64 / 140e12 * 1e9
    assert finding.saving_ns_per_step.high == pytest.approx(13_000_000 - causal, rel=1e-6)


def test_products_faster_than_the_gpu_are_none_of_these_sizes():
    softmax = (HALF_SOFTMAX.format("forward"), "aten::_softmax", "[[512, 2048, 2048]]", 5_000)
    fast = [(*each[:3], 500) for each in (SCORES, RESULT)]
    finding = only_finding("unfused-attention", sized(fast[0], softmax, fast[1]), fused_to_products_likely=1.0)
    assert finding.saving_ns_per_step.likely == 5_000_000


def test_a_fused_kernel_that_takes_longer_saves_nothing():
    """Two positions attend to two: whole tiles are computed all the same."""
    tiny = [
        (BF16, "aten::bmm", "[[512, 2, 64], [512, 64, 2]]", 4),
        (HALF_SOFTMAX.format("forward"), "aten::_softmax", "", 2),
    ]
    result = (BF16, "aten::bmm", "[[512, 2, 2], [512, 2, 64]]", 4)
    assert findings("unfused-attention", sized(*tiny, result)) == []

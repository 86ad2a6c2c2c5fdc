"""unfused-attention: product, softmax, product, each with kernels of its own."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary

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
    finding = only_finding("unfused-attention", step("mmaassssss"), avoidable_share_low=0.4, avoidable_share_likely=0.7)
    # scale, mask and softmax, a millisecond together, in a step of four
    assert finding.values == {"times_per_step": 1.0, **of_step("between", 1.0, 4.0)}
    assert finding.saving_ns_per_step == Saving(400_000, 700_000, 1_000_000)
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
    assert findings("unfused-attention", step("s", of=51), avoidable_share_likely=1.0) == []  # 1.96 %
    assert len(findings("unfused-attention", step("s", of=49), avoidable_share_likely=1.0)) == 1  # 2.04 %


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
    assert finding.confidence == "high"


def test_it_stays_silent_where_ops_tell_of_plain_products():
    """A gate: a layer, a softmax over its outputs, a layer."""
    assert findings("unfused-attention", products("z")) == []

"""elementwise-chains: kernels that only pass over memory, one behind the other."""

from __future__ import annotations

import pytest
from builders import draw, findings, of_step, only_finding, summary

from perfdoctor.records.savings import Saving

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, at::detail::Array<char*, 3>>(int)"
)
ADD, MUL, NEG = (ELEMENTWISE.format(name) for name in ("AddFunctor", "MulFunctor", "NegFunctor"))
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)"
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
NAMES = {"a": ADD, "b": MUL, "c": NEG, "n": NORM, "k": COPY}


def step(chain: str, *, of: int = 40, **more):
    """A step of `of` units that computes all the time: the chain between two matmuls."""
    picture = {
        "kernels": "G" + chain + "G" * (of - 1 - len(chain)),
        "kernel_names": NAMES,
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_on_a_chain():
    finding = only_finding("elementwise-chains", step("aaaabbbbccccnnnn"))
    # four kernels of 400 µs in a step of 4 ms: three pass over three tensors each, the norm over two
    assert finding.values == {"chains_per_step": 1.0, "links_mean": 4.0, **of_step("chains", 1.6, 4.0)}
    # the first does not write, two neither read nor write, the norm does not read; what is kept is written all the same
    likely = 400_000 * (1 / 3 + 2 / 3 + 2 / 3 + 1 / 2)
    least, most = 400_000 * (0 + 1 / 3 + 1 / 3 + 1 / 2), 400_000 * (1 / 3 + 1 + 1 + 1 / 2)
    assert finding.saving_ns_per_step == Saving(round(least), round(likely), round(most))
    assert "1 chains a step of 4.0 element-wise" in summary(finding)


def test_the_number_is_that_of_a_count_by_hand():
    """Two chains: of 3 kernels and 600 µs, and of 5 and 500 µs."""
    finding = only_finding("elementwise-chains", step("aabbcc" + "GG" + "abcan", of=20))
    first, second = 200_000 * (1 / 3 + 2 / 3 + 1 / 3), 100_000 * (1 / 3 + 2 / 3 + 2 / 3 + 2 / 3 + 1 / 2)
    assert finding.saving_ns_per_step.likely == pytest.approx(first + second, abs=2)
    assert (finding.values["chains_per_step"], finding.values["links_mean"]) == (2.0, 4.0)


def test_copies_and_short_kernels_between_links_neither_count_nor_break_the_chain():
    finding = only_finding("elementwise-chains", step("aaaakkkkbbbbkkkkcccc"))
    assert (finding.values["links_mean"], finding.values["chains_ms"]) == (pytest.approx(3.0), pytest.approx(1.2))


def test_it_stays_silent_just_below_the_threshold():
    # 3 units, of which four of nine passes are saved
    assert findings("elementwise-chains", step("abc", of=67)) == []  # 1.99 % of the step
    assert len(findings("elementwise-chains", step("abc", of=66))) == 1  # 2.02 %


def test_it_stays_silent_where_two_follow_each_other():
    """A normalization and its activation: every network has those."""
    assert findings("elementwise-chains", step("aaaabbbb")) == []


def test_it_stays_silent_where_a_matmul_stands_between_them():
    assert findings("elementwise-chains", step("aaaabbbbGccccnnnn")) == []


def test_it_stays_silent_where_a_loop_runs_one_kernel_over_many_tensors():
    """Neighbours in time that have nothing to do with each other."""
    kernels = "".join("adefghijk"[n % 9] for n in range(18))
    same = dict.fromkeys("adefghijk", ADD)
    assert findings("elementwise-chains", step(kernels, kernel_names=same)) == []


@pytest.mark.parametrize(
    "names",
    [
        {"a": "triton_poi_fused_add_0", "b": "triton_red_fused_mul_1", "c": "triton_per_fused_native_layer_norm_2"},
        {letter: ELEMENTWISE.format("FillFunctor") for letter in "abc"},
        {letter: f"void at::native::multi_tensor_apply_kernel<UnaryOpFunctor<{letter}>>(int)" for letter in "abc"},
    ],
    ids=["fused already", "fills", "many tensors at once"],
)
def test_it_stays_silent_where_nothing_is_left_to_fuse(names):
    assert findings("elementwise-chains", step("aaaaaabbbbbbcccccc", kernel_names=names)) == []


def test_it_stays_silent_where_kernels_are_so_short_that_memory_is_not_their_limit():
    """Small-kernels looks at those."""
    assert findings("elementwise-chains", step("abcnabcn", of=12, unit_us=9)) == []
    assert len(findings("elementwise-chains", step("abcnabcn", of=12, unit_us=10))) == 1


def test_it_stays_silent_where_the_optimizer_runs_them():
    picture = step("", kernels=" " + "abcn" * 4 + "G" * 23, host=["l" * 17, "u" * 16], launched_us_before=None)
    assert findings("elementwise-chains", picture) == []


def test_beside_other_kernels_they_gain_less():
    alone = only_finding("elementwise-chains", step("aaaabbbbccccnnnn"))
    beside = draw(
        kernels=["G" + "aaaabbbbccccnnnn" + "G" * 23, " G" + "G" * 7 + " " * 31],
        kernel_names=NAMES,
        launched_us_before=50,
        repeat=6,
    )
    assert only_finding("elementwise-chains", beside).saving_ns_per_step.likely == pytest.approx(
        alone.saving_ns_per_step.likely / 2, abs=1
    )

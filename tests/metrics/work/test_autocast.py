"""What does autocast change beside products? By the order of the kernels, each worked out by hand."""

from __future__ import annotations

import pytest
from builders import ELEMENTWISE, GEMM, SGEMM, only_place, timeline

from perfdoctor.metrics.work.autocast import autocast, cast_cost_ns
from perfdoctor.metrics.work.half_precision import ReachedRates, half_ns
from perfdoctor.model.timeline import Device

REACHED = ReachedRates(half=0.7, tf32=0.75, wide=0.9, memory=0.85, memory_of_products=0.5)
US, START_NS = 1_000, 2_000
MUL = ELEMENTWISE.replace("AddFunctor", "MulFunctor")
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)"
UPDATE = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)"


def drawn(*names: str, ns: int = 100 * US, every_ns: int = 40 * US, call_ns: int = 5 * US, ops: tuple = (), **kernel):
    """Kernels of 100 µs one behind the other, each launched 40 µs behind the one before by a call of 5 µs."""
    rows = [{"correlation": number + 1, "process": 1} for number in range(len(names))]
    return only_place(
        timeline(
            kernels=[
                {**row, **kernel, "name": name, "start_ns": 10**6 + n * ns, "end_ns": 10**6 + (n + 1) * ns}
                for n, (row, name) in enumerate(zip(rows, names, strict=True))
            ],
            calls=[
                {
                    **row,
                    "name": "cudaLaunchKernel",
                    "start_ns": n * every_ns + 100,
                    "end_ns": n * every_ns + call_ns + 100,
                }
                for n, row in enumerate(rows)
            ],
            ops=[
                {"name": op, "process": 1, "start_ns": n * every_ns, "end_ns": n * every_ns + call_ns + 200}
                for n, op in enumerate(ops)
            ],
            devices=[Device(0, 0, "NVIDIA A100-SXM4-80GB")],
        )
    )


def ns(place, case: str = "likely"):
    return autocast(place, REACHED, case).ns.tolist()


def test_what_follows_a_product_moves_half_of_its_bytes_until_something_stays_in_fp32():
    """The start of a kernel stays; in front of the softmax a cast moves 6 bytes a number, the softmax itself 8."""
    _, mul, softmax, behind = ns(drawn(SGEMM, MUL, SOFTMAX, MUL))
    moving = 100 * US - START_NS
    assert mul == pytest.approx(START_NS + moving / 2)
    assert softmax == pytest.approx(100 * US + START_NS + moving * 6 / 8)
    assert behind == pytest.approx(100 * US)


def test_a_sum_with_fp32_is_fp32():
    """Of 12 bytes a number 10 are left, and what follows is as it was."""
    _, add, mul = ns(drawn(SGEMM, ELEMENTWISE, MUL))
    assert add == pytest.approx(START_NS + (100 * US - START_NS) * 10 / 12)
    assert mul == pytest.approx(100 * US)


def test_an_op_says_what_its_kernels_name_does_not():
    names, ops = (SGEMM, MUL, MUL), ("aten::mm", "aten::log_softmax", "aten::mul")
    _, kept, behind = ns(drawn(*names, ops=ops))
    assert kept > 100 * US
    assert behind == pytest.approx(100 * US)


@pytest.mark.parametrize("names", [(GEMM, MUL), (MUL, MUL), (SGEMM, UPDATE), (SGEMM, "some_kernel")])
def test_what_is_in_16_bits_or_no_work_on_activations_stays(names):
    assert ns(drawn(*names))[1] == pytest.approx(100 * US)


def test_at_least_nothing_but_products_gets_faster_and_at_most_nothing_needs_a_cast():
    place = drawn(SGEMM, MUL, SOFTMAX)
    _, mul, softmax = ns(place, "low")
    assert mul == pytest.approx(100 * US)
    assert softmax > 100 * US
    product, mul, softmax = ns(place, "high")
    assert product == pytest.approx(half_ns(place, REACHED, "high")[0])
    assert mul < 60 * US
    assert softmax == pytest.approx(100 * US)


def test_products_cast_their_weights_and_what_comes_in_fp32():
    """Queries, keys and values read the same norm; the product behind a multiplication reads 16 bits."""
    names = (SOFTMAX, SGEMM, SGEMM, SGEMM, MUL, SGEMM, SOFTMAX, SGEMM)
    assert autocast(drawn(*names), REACHED, "likely").casts.tolist() == [0, 2, 2, 2, 0, 1, 1, 2]


def test_products_of_activations_have_no_weight():
    names, ops = (SOFTMAX, SGEMM, MUL, SGEMM), ("aten::softmax", "aten::bmm", "aten::mul", "aten::bmm")
    assert autocast(drawn(*names, ops=ops), REACHED, "likely").casts.tolist() == [0, 1, 0, 0]


def test_in_training_two_of_three_products_are_of_the_backward_pass():
    casts = autocast(drawn(SOFTMAX, SGEMM, UPDATE), REACHED, "likely").casts
    assert casts.tolist() == pytest.approx([0, 2 * 2 / 3, 0])


def test_a_cast_costs_the_host_four_launches_but_no_more_than_an_op_or_than_any_was_seen_to():
    assert cast_cost_ns(drawn(SGEMM, MUL, MUL))["likely"] == 20 * US
    assert cast_cost_ns(drawn(SGEMM, MUL, MUL, every_ns=12 * US))["likely"] == 12 * US
    assert cast_cost_ns(drawn(SGEMM, MUL, MUL, every_ns=90 * US, call_ns=20 * US))["likely"] == 32 * US
    place = drawn(SOFTMAX, SGEMM)
    assert autocast(place, REACHED, "likely").host_ns.tolist() == pytest.approx([0, 2 * 20 * US])
    assert autocast(place, REACHED, "low").host_ns[1] > autocast(place, REACHED, "high").host_ns[1]


def test_casts_in_a_cuda_graph_cost_the_host_nothing():
    assert not autocast(drawn(SOFTMAX, SGEMM, is_graph=True), REACHED, "likely").host_ns.any()

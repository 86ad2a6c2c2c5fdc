"""precision-casts: kernels that only turn numbers of one type into another."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary

TO_HALF = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"
    "::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>,"
    " at::native::memory::%s, at::native::memory::%s>(int)"
)
CAST = COPY % ("LoadWithCast<1>", "StoreWithCast<1>")
PLAIN = COPY % ("LoadWithoutCast", "StoreWithoutCast")


def step(units: int, *, of: int = 40, names=(TO_HALF, CAST), **more):
    picture = {
        "kernels": "G" * (of - units) + "".join("ab"[n % 2] for n in range(units)),
        "kernel_names": {"a": names[0], "b": names[1]},
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_tensors_are_cast_between_operations():
    finding = only_finding(
        "precision-casts", step(10), avoidable_share_low=0.2, avoidable_share_likely=0.5, avoidable_share_high=0.9
    )
    # ten kernels of 100 µs in a step of 4 ms
    assert finding.values == {
        "kernels_per_step": 10.0,
        "kernels_ms": pytest.approx(1.0),
        "step_ms": pytest.approx(4.0),
        "kernels_percent": pytest.approx(25.0),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (200_000, 500_000, 900_000)
    assert "10 kernels a step only cast between data types: 1.0 ms" in summary(finding)


def test_it_fires_on_casts_that_a_compiler_left_alone():
    names = ("triton_poi_fused__to_copy_0", "triton_poi_fused__to_copy_13")
    assert len(findings("precision-casts", step(10, names=names))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("precision-casts", step(1, of=21)) == []  # 4.8 %
    assert len(findings("precision-casts", step(1, of=20))) == 1  # 5 %


@pytest.mark.parametrize(
    "name",
    [
        PLAIN,
        "triton_poi_fused__to_copy_add_mul_3",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<c10::BFloat16>>(int)",
    ],
)
def test_it_stays_silent_on_kernels_that_copy_or_compute(name):
    assert findings("precision-casts", step(10, names=(name, name))) == []


def test_it_stays_silent_where_tensors_are_cast_to_64_bits():
    """Those are in fp64-kernels' price, and so is their cure."""
    name = CAST.replace("lambda(float)", "lambda(double)")
    assert findings("precision-casts", step(10, names=(name, name))) == []
    assert len(findings("fp64-kernels", step(10, names=(name, name)))) == 1


def test_it_stays_silent_where_casts_are_so_short_that_memory_is_not_their_limit():
    assert findings("precision-casts", step(10, unit_us=9)) == []
    assert len(findings("precision-casts", step(10, unit_us=10))) == 1


def test_it_stays_silent_where_the_optimizer_casts():
    picture = step(10, kernels=" " + "ab" * 5 + "G" * 29, host=["l" * 11, "u" * 11], launched_us_before=None)
    assert findings("precision-casts", picture) == []


def test_the_number_is_that_of_a_count_by_hand():
    """700 µs of casts, 200 µs of them beside a kernel on another stream."""
    beside = step(7, kernels=["G" * 33 + "abababa", " " * 33 + "GG" + " " * 5])
    assert only_finding("precision-casts", beside).values["kernels_ms"] == pytest.approx(0.5)

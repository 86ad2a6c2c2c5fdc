"""precision-casts: kernels that only turn numbers of one type into another."""

from __future__ import annotations

import pytest
from builders import findings
from kernel_kind_cases import CAST, CASTS, COPY

PLAIN = COPY % ("LoadWithoutCast", "StoreWithoutCast")


def test_it_fires_on_casts_that_a_compiler_left_alone():
    names = ("triton_poi_fused__to_copy_0", "triton_poi_fused__to_copy_13")
    assert len(findings("precision-casts", CASTS.step(10, names=names))) == 1


@pytest.mark.parametrize(
    "name",
    [
        PLAIN,
        "triton_poi_fused__to_copy_add_mul_3",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<c10::BFloat16>>(int)",
    ],
)
def test_it_stays_silent_on_kernels_that_copy_or_compute(name):
    assert findings("precision-casts", CASTS.step(10, names=(name, name))) == []


def test_it_stays_silent_where_tensors_are_cast_to_64_bits():
    """Those are in fp64-kernels' price, and so is their fix."""
    name = CAST.replace("lambda(float)", "lambda(double)")
    assert findings("precision-casts", CASTS.step(10, names=(name, name))) == []
    assert len(findings("fp64-kernels", CASTS.step(10, names=(name, name)))) == 1


def test_it_stays_silent_where_casts_are_so_short_that_memory_is_not_their_limit():
    assert findings("precision-casts", CASTS.step(10, unit_us=9)) == []
    assert len(findings("precision-casts", CASTS.step(10, unit_us=10))) == 1


def test_it_stays_silent_where_the_optimizer_casts():
    picture = CASTS.step(10, kernels=" " + "ab" * 5 + "G" * 29, host=["l" * 11, "u" * 11], launched_us_before=None)
    assert findings("precision-casts", picture) == []

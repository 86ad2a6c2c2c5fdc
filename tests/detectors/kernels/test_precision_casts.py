"""precision-casts: kernels that only turn numbers of one type into another."""

from __future__ import annotations

import pytest
from builders import findings, only_finding
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


NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)"


def beside(kernels: str):
    """A cast (a, 400 µs) in a step of 40 units; n is a norm."""
    names = {"a": CAST, "n": NORM, "m": NORM.replace("layer", "rms")}
    return CASTS.step(0, kernels=kernels + "G" * (40 - len(kernels)), kernel_names=names)


@pytest.mark.parametrize(
    ("kernels", "low", "likely"),
    [
        ("GaaaaG", 0, 0),  # a weight in front of its matmul
        ("GnnnnaaaaG", 0, 400_000),
        ("GaaaannnnG", 0, 400_000),
        ("GnnnnaaaammmmG", 400_000, 400_000),
        ("GnaaaaG", 0, 0),  # a quarter of its time: another tensor
        ("GnnnnnnnnnnaaaaG", 0, 0),
    ],
)
def test_a_cast_goes_where_a_neighbour_of_its_size_can_cast_itself(kernels, low, likely):
    saving = only_finding("precision-casts", beside(kernels)).saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (low, likely, 400_000)

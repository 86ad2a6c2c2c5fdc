"""fp64-kernels: what computes on 64-bit numbers and is no matrix multiplication."""

from __future__ import annotations

import pytest
from builders import draw, findings, only_finding, summary

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double>, at::detail::Array<char*, 3> >(int)"
LOG = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::log2_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}"
    "::operator()() const::{lambda()#1}::operator()() const::{lambda(double)#1}, at::detail::Array<char*, 2> >(int)"
)


def step(units: int, *, of: int = 40, names=(ADD, LOG), **more):
    picture = {
        "kernels": "G" * (of - units) + "".join("ab"[n % 2] for n in range(units)),
        "kernel_names": {"a": names[0], "b": names[1]},
        "launched_us_before": 50,
        "repeat": 6,
        "unit_us": 100,
    }
    return draw(**{**picture, **more})


def test_it_fires_where_kernels_compute_on_64_bits():
    finding = only_finding("fp64-kernels", step(10), avoidable_share_low=0.3, avoidable_share_likely=0.5)
    # ten kernels of 100 µs in a step of 4 ms
    assert finding.values == {
        "kernels_per_step": 10.0,
        "kernels_ms": pytest.approx(1.0),
        "step_ms": pytest.approx(4.0),
        "kernels_percent": pytest.approx(25.0),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (300_000, 500_000, 1_000_000)
    assert "10 kernels a step compute in fp64" in summary(finding)


@pytest.mark.parametrize(
    "name",
    [
        "void gemv2T_kernel_val<int, int, double, double, double, double, (int)128, (int)16>(cublasGemvParamsEx)",
        "cupy_multiply__float64_float64_float64",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::sum_functor<double, double, double>>>(R)",
    ],
)
def test_it_fires_on_reductions_and_products_with_a_vector(name):
    assert len(findings("fp64-kernels", step(10, names=(name, name)))) == 1


def test_it_stays_silent_just_below_the_threshold():
    assert findings("fp64-kernels", step(1, of=40)) == []  # 2.5 %
    assert len(findings("fp64-kernels", step(1, of=33))) == 1  # 3.03 %


@pytest.mark.parametrize(
    "name",
    [
        "at::native::amp_update_scale_cuda_kernel(float *, int *, float *, double, double, int)",
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>, double, double>(T)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::nan_to_num_kernel_cuda(at::TensorIteratorBase&, c10::optional<double>)::{lambda()#1}::operator()() const::{lambda(float)#1}>(int)",
    ],
)
def test_it_stays_silent_where_only_a_parameter_has_64_bits(name):
    assert findings("fp64-kernels", step(10, names=(name, name))) == []


def test_it_stays_silent_on_matrix_multiplications():
    """Those are fp32-matmuls'."""
    assert findings("fp64-kernels", step(10, names=("volta_dgemm_64x64_nn", "volta_dgemm_64x64_nn"))) == []


def test_the_number_is_that_of_a_count_by_hand():
    """700 µs of them, 200 µs beside a kernel on another stream."""
    beside = step(7, kernels=["G" * 33 + "abababa", " " * 33 + "GG" + " " * 5])
    assert only_finding("fp64-kernels", beside).values["kernels_ms"] == pytest.approx(0.5)

"""fp64-kernels: what computes on 64-bit numbers and is no matrix multiplication."""

from __future__ import annotations

import pytest
from builders import findings
from kernel_kind_cases import FP64


@pytest.mark.parametrize(
    "name",
    [
        "void gemv2T_kernel_val<int, int, double, double, double, double, (int)128, (int)16>(cublasGemvParamsEx)",
        "cupy_multiply__float64_float64_float64",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::sum_functor<double, double, double>>>(R)",
    ],
)
def test_it_fires_on_reductions_and_products_with_a_vector(name):
    assert len(findings("fp64-kernels", FP64.step(10, names=(name, name)))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "at::native::amp_update_scale_cuda_kernel(float *, int *, float *, double, double, int)",
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>, double, double>(T)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::nan_to_num_kernel_cuda(at::TensorIteratorBase&, c10::optional<double>)::{lambda()#1}::operator()() const::{lambda(float)#1}>(int)",
    ],
)
def test_it_stays_silent_where_only_a_parameter_has_64_bits(name):
    assert findings("fp64-kernels", FP64.step(10, names=(name, name))) == []


def test_it_stays_silent_on_matrix_multiplications():
    """Those are fp32-matmuls'."""
    assert findings("fp64-kernels", FP64.step(10, names=("volta_dgemm_64x64_nn", "volta_dgemm_64x64_nn"))) == []

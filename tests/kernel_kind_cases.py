"""Drawn steps that are a matmul and some kernels of one kind, and the rules that must see that kind."""

from __future__ import annotations

from dataclasses import dataclass

from builders import draw

from perfdoctor.model.timeline import Timeline

ADD_64 = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double>, at::detail::Array<char*, 3> >(int)"
LOG_64 = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::log2_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}"
    "::operator()() const::{lambda()#1}::operator()() const::{lambda(double)#1}, at::detail::Array<char*, 2> >(int)"
)
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(P)"
TO_NCHW = "void nhwcToNchwKernel<float, float, float, true, false>(int, int, int, int, float const*, float*)"
TO_HALF = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"
    "::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>,"
    " at::native::memory::%s, at::native::memory::%s>(int)"
)
CAST = COPY % ("LoadWithCast<1>", "StoreWithCast<1>")
LOG_SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float,"
    " at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)
NLL_BACKWARD = "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*)"
DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, {}, int>(P)"
DEPTHWISE_WEIGHTS = "void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<{}, int>(P)"


@dataclass(frozen=True)
class KernelKindCase:
    """A rule about one kind of kernels, of which `names` are two.

    `shares`: of the time of ten kernels, saved at least, likely and at most; thresholds of the rule if they are
    `assumed`. `silent`, `found`: units of the kind, and units of the step, just below the threshold and at it. `says`:
    what the summary says of ten kernels.
    """

    rule: str
    names: tuple[str, str]
    shares: tuple[float, ...]
    silent: tuple[int, int]
    found: tuple[int, int]
    says: str
    assumed: bool = True

    @property
    def thresholds(self) -> dict[str, float]:
        if not self.assumed:
            return {}
        return {
            f"avoidable_share_{end}": share for end, share in zip(("low", "likely", "high"), self.shares, strict=False)
        }

    def step(self, units: int, *, of: int = 40, names: tuple[str, str] = ("", ""), **more: object) -> Timeline:
        """Steps of `of` units: a matmul, then `units` kernels with these names in turn."""
        picture = {
            "kernels": "G" * (of - units) + "".join("ab"[n % 2] for n in range(units)),
            "kernel_names": {"a": names[0] or self.names[0], "b": names[1] or self.names[1]},
            "launched_us_before": 50,
            "repeat": 6,
            "unit_us": 100,
        }
        return draw(**{**picture, **more})

    def beside_other_work(self) -> Timeline:
        """700 µs of the kind a step, of which 200 µs lie beside a kernel on another stream."""
        return self.step(7, kernels=["G" * 33 + "abababa", " " * 33 + "GG" + " " * 5])


FP64 = KernelKindCase(
    "fp64-kernels", (ADD_64, LOG_64), (0.3, 0.5), (1, 40), (1, 33), "10 kernels a step compute in fp64"
)  # 2.5 and 3.03 %
LAYOUT = KernelKindCase(
    "layout-transposes", (TO_NHWC, TO_NCHW), (0.5, 0.9), (1, 40), (1, 33),
    "10 kernels a step only convert tensors between NCHW and NHWC",
)  # 2.5 and 3.03 %  # fmt: skip
CASTS = KernelKindCase(
    "precision-casts", (TO_HALF, CAST), (0.9, 0.9, 1.0), (1, 21), (1, 20),
    "10 kernels a step only cast between data types: 1.0 ms", assumed=False,
)  # 4.8 and 5 %; between two matmuls ten casts there and back are one  # fmt: skip
LOSS = KernelKindCase(
    "unfused-cross-entropy", (LOG_SOFTMAX, NLL_BACKWARD), (0.3, 0.5, 0.8), (2, 41), (2, 40),
    "10 kernels a step compute softmax, loss and their gradients",
)  # 4.9 and 5 %  # fmt: skip
CHANNELS = KernelKindCase(
    "depthwise-convolutions", (DEPTHWISE.format("float"), DEPTHWISE_WEIGHTS.format("float")), (0.055, 0.375, 0.55),
    (3, 31), (3, 30), "10 kernels a step are depthwise convolutions", assumed=False,
)  # 9.7 and 10 %; half of the time is of gradients of weights  # fmt: skip
CASES = (FP64, LAYOUT, CASTS, LOSS, CHANNELS)

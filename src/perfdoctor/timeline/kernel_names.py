"""What does a kernel do, going by its name? Collective or not, family, math path, and data type of its inputs.

Names are the only evidence that every recording has. They are read conservatively: what a name does not prove is
`unknown`, never "no". Sources of the conventions: cuBLAS and cuDNN name their kernels by architecture, input type and
instruction (`volta_sgemm`, `ampere_fp16_s16816gemm`, `xmma_…_ffma`); CUTLASS by `tensorop` or `simt`; cuBLAS on Hopper
and later by `nvjet_<types>` whose first letter is the input type; Tensile and hipBLASLt by `Cijk_…_MI…` (matrix
instruction); Inductor by `triton_poi|red|per|mm`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

#: Kernels that talk to other devices: NCCL, RCCL, MSCCL, NVSHMEM, symmetric memory, custom all-reduce, DeepEP.
COLLECTIVE = re.compile(
    r"\bnccl|ncclDevKernel|ncclKernel|\brccl|msccl|nvshmem|multimem_|symm_mem|_shot_all_?reduce"
    r"|cross_device_reduce|deep_ep::|oneccl|hccl",
    re.IGNORECASE,
)
_COLLECTIVE_KINDS = (
    ("all_reduce", r"all_?reduce|cross_device_reduce"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all|alltoall|deep_ep"),
    ("send_recv", r"send|recv"),
    ("broadcast", r"broadcast|bcast"),
    ("barrier", r"barrier"),
    ("reduce", r"reduce"),
)

_FAMILIES = (
    # Tables that look-ups and their optimizers touch: before "optimizer", which their names also mention.
    ("embedding", r"embedding|permute_pooled|jagged|lengths_range|bucketize"),
    ("attention", r"flash(?!_?infer.*norm)|fmha|attn|attention|sdpa|paged_kv|mla_"),
    (
        "optimizer",
        (
            r"multi_tensor_apply_kernel.*(Adam|SGD|Sgd|Lamb|Adagrad|Lion|Adadelta|RMSprop)|fused_?(adam|sgd|lamb|lion)"
            r"|FusedAdam|FusedSgd|FusedAdagrad|\badam_|adamw|AdamFunctor"
        ),
    ),
    (
        "convolution",
        (
            r"conv(?!ert)|dgrad|wgrad|fprop|winograd|scudnn|\d_?cudnn|s884cudnn|implicit_gemm|igemm_(fwd|bwd|wrw)"
            r"|cudnn::cnn::|miopen|ConvFwd|ConvBwd|naive_conv"
        ),
    ),
    (
        "gemm",
        (
            r"(?<!fb)gemm|\bbmm_|nvjet|Cijk_|matmul|gemv|splitK_?reduce|triton_(mm|bmm|tem)|triton_\w*_(add)?b?mm(_|\b)"
            r"|_mm_kernel|dot_kernel|wgmma|gmma|GemmUniversal|ampere_.*16816|cublasLt::"
        ),
    ),
    ("normalization", r"batch_?norm|\bbn_(fw|bw)|layer_?norm|rms_?norm|group_?norm|instance_?norm|GammaBeta"),
    (
        "elementwise",
        (
            r"elementwise|triton_poi_|nchwToNhwc|nhwcToNchw|transpose|permute|CatArray|copy|cast|FillFunctor|dropout"
            r"|gelu|relu|silu|multi_tensor_apply_kernel|CudaCodeGen|pointwise|fill|setTensor|im2col|col2im|upsample"
            r"|index|scatter|gather"
        ),
    ),
    ("reduction", r"reduce|softmax|triton_(red|per)_|DeviceScan|Sort|topk|cumsum|nll_loss|cross_entropy|argmax|pool"),
)

_HALF = (
    r"fp16|(?<![a-z0-9])f16|_f16|f16f16|bf16|bfloat|__half|\bhalf|h884|h1688|h16816|hgemm|nvjet_[ht]|nvjet_[qo]"
    r"|e4m3|e5m2|fp8"
)
_TENSOR_CORE = (
    r"tensorop|hmma|imma|dmma|qmma|wgmma|gmma|nvjet_|[shid]_?884|[shi]_?1688|[shi]_?16816|[i]_?(8832|16832)|884gemm"
    r"|1688gemm|16816gemm|tf32|xdlops|mfma|Cijk_.*_MI\d|gtcx|flash_fwd|flash_bwd|flash_attn|fmha_cutlass|fmha_v2"
    r"|cutlass3x_sm(90|100)"
    r"|xmma_\w*(f16f16|bf16bf16|e4m3|e5m2|tf32)|tensor\d+x\d+x\d+"
)
_NO_TENSOR_CORE = (
    r"ffma|(?<![a-z])sgemm|scudnn(?!.*884)|_simt_|convolveNd_\w*float_engine|(d|w)grad_(alg\d_)?engine"
    r"|implicit_convolve(Nd)?_sgemm|gemv|naive_conv|dgemm_(?!.*884)"
)
_FP64 = r"(?<![a-z])dgemm|\bdouble\b|f64|d884|dmma|float64"
_TF32 = r"tf32|nvjet_s"
_TF32_INSTRUCTION = r"s_?1688"  # with half inputs the name says so; alone it is the TF32 instruction of fp32 inputs
_FP32 = (
    r"ffma|(?<![a-z])sgemm|scudnn|f32f32_f32f32|engine<float\b|convolve\w*<float\b|simt_s|fmha_cutlass[FB]_f32"
    r"|winograd\w*<float"
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _says(name: str, pattern: str) -> bool:
    return _compiled(pattern).search(name) is not None


@lru_cache(maxsize=65536)
def collective_kind(name: str) -> str:
    """all_reduce, all_gather, reduce_scatter, all_to_all, send_recv, broadcast, reduce, barrier or other.

    Works on kernel names (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`) and on c10d names (`_allgather_base`).
    """
    return next((kind for kind, pattern in _COLLECTIVE_KINDS if _says(name, pattern)), "other")


@lru_cache(maxsize=65536)
def family(name: str) -> str:
    """One of findings.KERNEL_FAMILIES; "other" where the name does not tell."""
    return next((known for known, pattern in _FAMILIES if _says(name, pattern)), "other")


@lru_cache(maxsize=65536)
def math_path(name: str) -> str:
    """tensor_core, no_tensor_core or unknown: which units a matmul, convolution or attention kernel computes on."""
    if _says(name, _TENSOR_CORE) and not _says(name, r"ffma"):
        return "tensor_core"
    return "no_tensor_core" if _says(name, _NO_TENSOR_CORE) else "unknown"


@lru_cache(maxsize=65536)
def input_type(name: str) -> str:
    """Half (16 bit and below), tf32, fp32, fp64 or unknown: what a matmul, convolution or attention kernel reads."""
    if _says(name, _FP64):
        return "fp64"
    if _says(name, _TF32):
        return "tf32"
    if _says(name, _HALF) or _says(name, r"hmma_fp32_traits"):  # half inputs, fp32 accumulation
        return "half"
    if _says(name, _TF32_INSTRUCTION):
        return "tf32"
    return "fp32" if _says(name, _FP32) else "unknown"

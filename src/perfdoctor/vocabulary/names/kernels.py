"""What does a kernel do, going by its name? Collective or not, family, math path, and data type of its inputs.

Names are the only evidence that every recording has. They are read conservatively: what a name does not prove is
`unknown`, never "no". Sources of the conventions: cuBLAS and cuDNN name their kernels by architecture, input type and
instruction (`volta_sgemm`, `ampere_fp16_s16816gemm`, `xmma_…_ffma`); CUTLASS by `tensorop` or `simt`; cuBLAS on Hopper
and later by `nvjet_[sm<architecture>_]<types>` whose first letter is the input type; Tensile and hipBLASLt by
`Cijk_…_<types>_…_MI…` (matrix instruction); Inductor by `triton_poi|red|per|mm`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

#: Kernels that talk to other devices: NCCL, RCCL, MSCCL, NVSHMEM and rocSHMEM, PyTorch's symmetric memory, the custom
#: all-reduces of inference engines (vLLM, SGLang, TensorRT-LLM, FlashInfer, AITER, QuickReduce), Transformer Engine's
#: userbuffers, and the all-to-alls of experts (DeepEP and its kin, MORI, pplx-garden, TensorRT-LLM). Inductor names
#: what it fuses after the calls around it (`triton_poi_fused_all_reduce_0` fills the buffer that is reduced next), and
#: a softmax "all-reduces" inside a warp: neither talks to anybody.
COLLECTIVE = re.compile(
    r"^(?!triton_(?:poi|red|per|for|tem|mm|bmm|spl)_|triton__).*(?:"
    r"\bnccl|ncclDevKernel|ncclKernel|\brccl|msccl|nvshmem|rocshmem|multimem_|symm_mem|symmetric_memory::"
    r"|(?<!warp)(?<!block)(?<!quad)all_?reduce(?!\w*gemm)|quickreduce::|cross_device_(?:reduce|store)|userbuffers_"
    r"|exchangeSplitAndOffset|\ball_?to_?all_?v|\bmoe_?A2A|\ba2a_(?:dispatch|combine)_(?:send|recv)"
    r"|deep_ep::(?!layout::)|\b(?:intra|inter)node(?:_ll)?::(?:notify_|cached_notify|dispatch|combine)"
    r"|\bEp(?:Dispatch|Combine)(?:Intra|Inter)Node|oneccl|hccl|\bgloo::)",
    re.IGNORECASE,
)
_COLLECTIVE_KINDS = (
    ("all_reduce", r"all_?reduce|cross_device_reduce|userbuffers_\w+_gpu_(rw|rr|mc)(?!_(rs|ag))"),
    ("reduce_scatter", r"reduce_?scatter|userbuffers_\w+_rs"),
    ("all_gather", r"all_?gather|userbuffers_\w+_ag"),
    (
        "all_to_all",
        (
            r"all_?to_?all|deep_ep|exchangeSplitAndOffset|moe_?A2A|a2a_(dispatch|combine)"
            r"|(intra|inter)node(_ll)?::|Ep(Dispatch|Combine)(Intra|Inter)"
        ),
    ),
    ("send_recv", r"send|recv"),
    ("broadcast", r"broadcast|bcast"),
    ("barrier", r"barrier"),
    ("reduce", r"reduce"),
)

_FAMILIES = (
    # Tables that look-ups and their optimizers touch: before "optimizer", which their names also mention.
    ("embedding", r"embedding|permute_pooled|jagged|lengths_range|bucketize"),
    # FlashInfer has kernels of every kind: sampling, norms, activations, all-reduces. Its attention has a KV cache.
    (
        "attention",
        r"flash(?!_?infer)|flashinfer\S*?(prefill|decode|kvcache|mergestates|mla)|fmha|attn|attention|sdpa|paged_kv|mla_",
    ),
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

# What proves the units that a matmul, a convolution or an attention kernel computes on. A name that proves neither is
# unknown: many tools write kernels named "sgemm" or "flash_fwd_kernel", and some of those use tensor cores.
_TENSOR_CORE = (
    r"(?<!sub)tensorop|[hid]mma(?![a-z])|qmma|wgmma|gmma|wmma|nvjet_|(?<![a-z0-9])mma_|_mma_|m16n8k|_?884(gemm|cudnn)"
    r"|[shidc]_?(884|1688|16816|8816|16832|161616)|tf32|xdl|mfma|Cijk_.*_MI\d|igemm_\w+_gtcx"
    r"|pytorch_flash::|(?<![a-z])flash::flash_(fwd|bwd)|Flash_(fwd|bwd)_kernel_traits|FlashAttn(Fwd|Bwd)Sm\d|fmha_v2_"
    r"|fmha_cutlass[FB]_(bf16_\w*_sm|f16_\w*_sm(7|8|9|1\d)|f32_\w*_sm(8|9|1\d))|native_sdpa_|deep_gemm::"
    r"|tensor\d+x\d+x\d+|warpgroupsize"
)
_NO_TENSOR_CORE = (
    r"ffma|hfma|dfma|(?<![a-z])sgemm|(?<![a-z])scudnn|_simt_|OpClassSimt|fmha_cutlass[FB]_\w*_sm50|fmha_cutlass[FB]_f32_\w*_sm7"
    r"|convolveNd_\w*float_engine|convolve_common_engine_float|(d|w)grad_(alg\d_)?(nd_)?(float_)?engine"
    r"|convolve(Nd)?_sgemm|gemv|naive_conv|(kepler|maxwell|pascal|volta|turing)_dgemm"
    r"|(maxwell|pascal|volta|turing|ampere)_(h|g?c|z)gemm"
)
#: Each channel is convolved by itself (groups as many as channels): nothing to multiply as a matrix.
_DEPTHWISE = r"depthwise|dwconv|_grouped_direct_kernel"

#: Channels to the back or to the front, by cuDNN, MIOpen and their helpers. A transpose that the program asked for is a
#: copy by another name, and a convolution that converts as it goes has `nhwc2nchw` in its own.
_LAYOUT_CHANGE = r"nchw_?to_?nhwc|nhwc_?to_?nchw|batched_transpose_\d+x\d+|transpose_(NCHW2CNHW|CNHW2NCHW)"

# Types, the surest sign first. xmma tells (storage)(storage)_(math)(sum); nvjet the types of A, B where they differ, …
_XMMA = re.compile(r"xmma_\w*?_(?:[a-z]+\d+)(?:[a-z]+\d+)_([a-z]+?\d+?)(?:bf16|tf32|f\d\d|i32|c\d\d)_")
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2,5}_")
_TENSILE = re.compile(r"Cijk_[A-Z]\w+?_[A-Z]\w+?_((?:F8|B8|I8)+[A-Z]*|4xi8\w*|[HBSDCZI]+)_")
_FIRST_ARGUMENT = re.compile(  # the element type that a template names first: gemv2T_kernel<int, int, float, …>
    r"<(?:(?:int|bool|unsigned int|\(\w+\)\w+|\w*\d+|true|false), ){0,8}"
    r"(double|float|__half|half|c10::Half|c10::BFloat16|__nv_bfloat16)\b"
)
_BY_LETTER = {"h": "half", "t": "half", "q": "half", "r": "half", "o": "half", "s": "tf32", "d": "fp64"}
_BY_WORD = {"double": "fp64", "float": "fp32", "f64": "fp64", "f32": "fp32", "tf32": "tf32"}
_FP64 = r"(?<![a-z])dgemm|\bdouble\b|(?<![a-z])f64|d884|dmma|float64"
_HALF = (
    r"fp16|(?<![a-z0-9])f16|_f16|f16f16|bf16|bfloat|__half|\bhalf|_half|h884|h1688|h16816|hgemm|e4m3|e5m2|e2m1|fp8"
    r"|hmma(?!_tf32)|imma|qmma|i\d?8816|i16832|native_sdpa_|pytorch_flash::|Flash_(fwd|bwd)_kernel_traits|FlashAttn(Fwd|Bwd)Sm\d"
)
_TF32_INSTRUCTION = r"s_?1688"  # with half inputs the name says so; alone it is the TF32 instruction of fp32 inputs
_FP32 = (
    r"ffma|(?<![a-z])sgemm|(?<![a-z])scudnn|engine<float\b|convolve\w*<float\b|simt_s|fmha_cutlass[FB]_f32"
    r"|winograd\w*<float|(volta|turing|ampere)_g?cgemm|igemm_\w+_fp32_|naive_conv\w*_float"
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
    if _says(name, r"[fhd]fma(?![a-z])|_simt_|OpClassSimt"):
        return "no_tensor_core"
    xmma = _XMMA.search(name)
    if xmma and xmma.group(1) in ("f16", "bf16", "tf32", "i8"):
        return "tensor_core"
    if _says(name, _TENSOR_CORE):
        return "tensor_core"
    return "no_tensor_core" if _says(name, _NO_TENSOR_CORE) or _says(name, _DEPTHWISE) else "unknown"


@lru_cache(maxsize=65536)
def input_type(name: str) -> str:
    """Half (16 bit and below), tf32, fp32, fp64 or unknown: what a matmul, convolution or attention kernel reads."""
    told = _told_type(name)
    if told:
        return told
    if _says(name, _FP64):
        return "fp64"
    if _says(name, r"tf32"):
        return "tf32"
    if _says(name, _HALF):
        return "half"
    if _says(name, _TF32_INSTRUCTION):
        return "tf32"
    return "fp32" if _says(name, _FP32) else "unknown"


def _told_type(name: str) -> str:
    """The type by the library's own scheme of names; "" where the name follows none."""
    if found := _NVJET.search(name):
        return _BY_LETTER.get(found.group(1), "unknown")
    if found := _XMMA.search(name):
        return _BY_WORD.get(found.group(1), "half" if not found.group(1).startswith("c") else "unknown")
    if found := _TENSILE.search(name):
        first = found.group(1)[0]
        return {"S": "fp32", "D": "fp64", "C": "unknown", "Z": "unknown"}.get(first, "half")
    if (is_vector_product(name) or is_depthwise(name)) and (found := _FIRST_ARGUMENT.search(name)):
        return _BY_WORD.get(found.group(1), "half")
    return ""


@lru_cache(maxsize=65536)
def is_vector_product(name: str) -> bool:
    """A matrix times a vector, or nearly: each number is read once, so memory is its limit, not a unit."""
    return _says(name, r"gemv|gemmk1_|dot_kernel")


@lru_cache(maxsize=65536)
def is_depthwise(name: str) -> bool:
    """A convolution of each channel by itself: the kernels that libraries have for it compute on no tensor cores."""
    return _says(name, _DEPTHWISE)


@lru_cache(maxsize=65536)
def is_compiled(name: str) -> bool:
    """Did a compiler of the framework make it (Inductor, nvFuser, the older fuser of TorchScript)?"""
    return _says(name, r"triton_(poi|red|per|for|spl)|triton__|nvfuser|CudaCodeGen")


@lru_cache(maxsize=65536)
def is_layout_change(name: str) -> bool:
    """Does the kernel only move channels to the back or to the front, for a convolution?"""
    return _says(name, _LAYOUT_CHANGE)


@lru_cache(maxsize=65536)
def alignment(name: str) -> int:
    """How many elements in a row a CUTLASS or xmma kernel was built to read at once; 0 where the name does not tell.

    cuBLAS takes a kernel for the largest alignment that sizes and addresses allow, so a small one tells of sizes.
    """
    found = re.search(r"(?:_align|aligna)(\d+)", name)
    return int(found.group(1)) if found else 0

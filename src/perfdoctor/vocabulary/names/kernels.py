"""What does a kernel do, going by its name? Family, math path, data type of its inputs, and what it is one piece of.

Names are the only evidence that every recording has. They are read conservatively: what a name does not prove is
`unknown`, never "no". Sources of the conventions: cuBLAS and cuDNN name their kernels by architecture, input type and
instruction (`volta_sgemm`, `ampere_fp16_s16816gemm`, `xmma_…_ffma`); CUTLASS by `tensorop` or `simt`; cuBLAS on Hopper
and later by `nvjet_[sm<architecture>_]<types>` whose first letter is the input type; Tensile and hipBLASLt by
`Cijk_…_<types>_…_MI…` (matrix instruction); Inductor by `triton_poi|red|per|mm`; PyTorch's own (aten/src/ATen/native)
by the C++ template that was instantiated (`at::native::vectorized_elementwise_kernel<4, …>`); XLA by the HLO
instruction (`loop_add_fusion_3`, `input_reduce_fusion`, `gemm_fusion_dot_7`). Kernels that talk to
other devices are in `nccl`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from perfdoctor.patterns import regex
from perfdoctor.vocabulary.kinds import MATMUL_FAMILIES
from perfdoctor.vocabulary.names import nccl

#: The whole update of a tensor in one kernel.
_BITSANDBYTES = r"k(Precondition)?Optimizer(32bit|Static8bit)"
_FAMILIES = {
    # Tables that look-ups and their optimizers touch: before "optimizer", which their names also mention.
    "embedding": r"embedding|permute_pooled|jagged|lengths_range|bucketize",
    # FlashInfer has kernels of every kind: sampling, norms, activations, all-reduces. Its attention has a KV cache.
    "attention": (
        r"flash(?!_?infer)|flashinfer\S*?(prefill|decode|kvcache|mergestates|mla)|fmha|attn|attention|sdpa|paged_kv|mla_"
    ),
    "optimizer": (
        r"multi_tensor_apply_kernel.*(Adam|SGD|Sgd|Lamb|Adagrad|Lion|Adadelta|RMSprop)|fused_?(adam|sgd|lamb|lion)"
        r"|FusedAdam|FusedSgd|FusedAdagrad|\badam_|adamw|AdamFunctor|" + _BITSANDBYTES
    ),
    "convolution": (
        r"conv(?!ert)|dgrad|wgrad|fprop|winograd|scudnn|\d_?cudnn|s884cudnn|implicit_gemm|igemm_(fwd|bwd|wrw)"
        r"|cudnn::cnn::|miopen(?!BatchNorm)|ConvFwd|ConvBwd|naive_conv"
    ),
    "gemm": (
        r"(?<!fb)gemm|\bbmm_|nvjet|Cijk_|matmul|gemv|splitK_?reduce|triton_(mm|bmm|tem)|triton_\w*_(add)?b?mm(_|\b)"
        r"|_mm_kernel|dot_kernel|wgmma|gmma|GemmUniversal|ampere_.*16816|cublasLt::"
    ),
    "normalization": r"batch_?norm|\bbn_(fw|bw)|layer_?norm|rms_?norm|group_?norm|instance_?norm|GammaBeta",
    "elementwise": (
        r"elementwise|triton_poi_|nchwToNhwc|nhwcToNchw|transpose|permute|CatArray|copy|cast|FillFunctor|dropout"
        r"|gelu|relu|silu|multi_tensor_apply_kernel|CudaCodeGen|pointwise|fill|setTensor|im2col|col2im|upsample"
        r"|index|scatter|gather|^loop_(?!\w*reduce)\w*fusion|^wrapped_(?!reduce)"
    ),
    "reduction": r"reduce|softmax|triton_(red|per)_|DeviceScan|Sort|topk|cumsum|nll_loss|cross_entropy|argmax|pool",
}
#: Inductor's loops and reductions name all ops that they were made of, also a product or a convolution of which they
#: compute no more than its bias: what multiplies is a template, or a kernel of a library.
_INDUCTOR_LOOP = r"triton_(poi|red|per|for|spl)_"

# What proves the units that a matmul, a convolution or an attention kernel computes on. A name that proves neither is
# unknown: many tools write kernels named "sgemm" or "flash_fwd_kernel", and some of those use tensor cores.
_TENSOR_CORE = (
    r"(?<!sub)tensorop|(?<![a-z])[hid]mma(?![a-z])|qmma|wgmma|gmma|wmma|nvjet_|(?<![a-z0-9])mma_|_mma_|m16n8k"
    r"|_?884(gemm|cudnn)|[shidc]_?(884|1688|16816|8816|16832|161616)|tf32|xdl|mfma|Cijk_.*_MI\d|igemm_\w+_gtcx"
    r"|pytorch_flash::|(?<![a-z])flash::flash_(fwd|bwd)|Flash_(fwd|bwd)_kernel_traits|FlashAttn(Fwd|Bwd)Sm\d|fmha_v2_"
    r"|fmha_cutlass[FB]_(bf16_\w*_sm|f16_\w*_sm(7|8|9|1\d)|f32_\w*_sm(8|9|1\d))|native_sdpa_|deep_gemm::"
    r"|tensor\d+x\d+x\d+|warpgroupsize|MMA_Atom<cute::SM\d+_"
    # CuTe for Python names the layout of threads in an instruction: one or two blocks, a warp or a warp group.
    r"|TiledMMA_ThrLayoutVMNK([12]111[01]000|32\d|128[1-4]1)"
)
_NO_TENSOR_CORE = (
    r"ffma|hfma|dfma|(?<![a-z])sgemm|(?<![a-z])scudnn|_simt_|OpClassSimt|fmha_cutlass[FB]_\w*_sm50|fmha_cutlass[FB]_f32_\w*_sm7"
    r"|convolveNd_\w*float_engine|convolve_common_engine_float|(d|w)grad_(alg\d_)?(nd_)?(float_)?engine"
    r"|convolve(Nd)?_sgemm|gemv|naive_conv|(kepler|maxwell|pascal|volta|turing)_dgemm"
    r"|(maxwell|pascal|volta|turing|ampere)_(h|g?c|z)gemm"
)
#: Each channel is convolved by itself (groups as many as channels): nothing to multiply as a matrix.
_DEPTHWISE = r"depthwise|dwconv|_grouped_direct_kernel"

#: Kernels that sort and move the tokens of a layer of experts: Transformer Engine's, vLLM's, SGLang's.
PERMUTES_TOKENS = regex(
    r"(?<![a-z])(un)?permute_(kernel|with_mask)|sort_chunks_by|moe_?(align|sum|(un)?permute)|token_(un)?permut|scattermoe"
    r"|topk_?gating|expandInputRows|finalizeMoeRouting",
    re.IGNORECASE,
)
#: Channels to the back or to the front, by cuDNN, MIOpen and their helpers. A transpose that the program asked for is a
#: copy by another name, and a convolution that converts as it goes has `nhwc2nchw` in its own.
_LAYOUT_CHANGE = r"nchw_?to_?nhwc|nhwc_?to_?nchw|batched_transpose_\d+x\d+|transpose_(NCHW2CNHW|CNHW2NCHW)"

# Types, the surest sign first. xmma names (storage)(storage)_(math)(sum); nvjet the types of A, B where they differ, …
_XMMA = regex(r"xmma_\w{0,80}?_(?:[a-z]{1,8}\d{1,4}){2}_([a-z]{1,8}?\d{1,4}?)(?:bf16|tf32|f\d\d|i32|c\d\d)_")
_NVJET = regex(r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2,5}_")
_TENSILE = regex(r"Cijk_[A-Z]\w{1,16}?_[A-Z]\w{1,16}?_((?:F8|B8|I8){1,4}[A-Z]{0,8}|4xi8\w{0,16}|[HBSDCZI]{1,8})_")
_TENSOR = regex(r"cublasGemvTensor\w*<(double|float|__half|__nv_bfloat16) const>")  # what cuBLAS's gemv, dot, … read
_FIRST_ARGUMENT = regex(  # the element type that a template names first: gemv2T_kernel<int, int, float, …>
    r"<(?:(?:int|bool|unsigned int|\(\w+\)\w+|\d+|true|false), ){0,8}"
    r"(double|float|__half|half|c10::Half|c10::BFloat16|__nv_bfloat16)\b"
)
_BY_LETTER = {"h": "half", "t": "half", "q": "half", "r": "half", "o": "half", "s": "tf32", "d": "fp64"}
_BY_WORD = {"double": "fp64", "float": "fp32", "f64": "fp64", "f32": "fp32", "tf32": "tf32"}
#: The instruction of CuTe for Python: 64 rows or more read 32 bytes of each at once (PTX ISA, wgmma and tcgen05.mma).
_CUTE_SHAPE = regex(r"MMAAtom_ThrID\d+_ShapeMNK(?:64|128|256)\d+?(8|16|32|64)_")
_FP64 = r"(?<![a-z])dgemm|\bdouble\b|(?<![a-z])f64|d884|(?<![a-z])dmma|float64"
_HALF = (
    r"fp16|(?<![a-z0-9])f16|_f16|f16f16|bf16|bfloat|__half|\bhalf|_half|h884|h1688|h16816|hgemm|half_t"
    r"|e4m3|e5m2|e2m1|fp8|fp4|mxf[48]|f8f6f4|hmma(?!_tf32)|imma|qmma|i\d?8816|i16832|native_sdpa_"
    r"|pytorch_flash::|Flash_(fwd|bwd)_kernel_traits|FlashAttn(Fwd|Bwd)Sm\d"
)
_TF32_INSTRUCTION = r"s_?1688"  # with half inputs the name says so; alone it is the TF32 instruction of fp32 inputs
_FP32 = (
    r"ffma|UniversalFMA<float\b|(?<![a-z])sgemm|(?<![a-z])scudnn|engine<float\b|convolve\w*<float\b|simt_s|fmha_cutlass[FB]_f32"
    r"|winograd\w*<float|(volta|turing|ampere)_g?cgemm|igemm_\w+_fp32_|naive_conv\w*_float"
)

#: The generation that NVIDIA's libraries name, or its number: `sm80_xmma_…`, `…_rf_sm80`, `cutlass_80_tensorop_…`.
_CAPABILITY_OF = {"volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "nvjet": (9, 0)}
_GENERATION = regex(rf"(?<![a-z])(?:{'|'.join(_CAPABILITY_OF)})(?=_)")
_ARCHITECTURE = regex(r"(?<![A-Za-z])sm_?(\d{2,3})(?!\d)|cutlass_(\d{2,3})_")
_BRAIN_FLOAT = regex(r"bf16|bfloat|nvjet_(?:sm\d+_)?t|Cijk_[A-Z]\w+?_[A-Z]\w+?_B", re.IGNORECASE)
#: Types below 16 bits; the first in a name is that of the first input.
_NARROW = regex(r"e4m3|e5m2|fp8|e2m1", re.IGNORECASE)
#: CUTLASS writes the types of both factors behind `gemm_` (that of the second where it differs: 16 bits times 8 are
#: no product of bytes), the integer instruction before it; xmma the type it computes on behind that of its storage.
_BYTES = regex(
    r"gemm_(e[45]m[23]|[su]8)(?!_?(f16|bf16|s4|u4|e2m1))|(?<![a-z])[is]_?(8816|16832|161616)gemm(?!_(f16|bf16|s4|u4))"
    r"|xmma_\w*?_(?:[a-z0-9]+)_(e[45]m[23]|i8)(f|i)\d\d_",
    re.IGNORECASE,
)

# --- PyTorch's own kernels (at::native) ---

#: One operation on each element, or a normalization or reduction over them, in a kernel of its own; also Apex's.
EAGER = regex(
    r"(vectorized|unrolled|legacy)_elementwise_kernel|native::elementwise_kernel<|layer_?norm|rms_?norm|group_?norm|GammaBeta"
    r"|batch_?norm|\bbn_(fw|bw)|cuCompute|native::reduce_kernel<|fused_dropout_kernel",
    re.IGNORECASE,
)
#: No link of a chain of such: a fill begins something, an update of many tensors is one kernel already.
NEVER_IN_CHAIN = regex(r"FillFunctor|multi_tensor|distribution_|index|scatter|gather", re.IGNORECASE)
#: A copy or a cast between two links.
COPY = regex(r"copy_kernel|copy_device_to_device|CatArray|LoadWithCast", re.IGNORECASE)
#: Copies that convert, PyTorch's and Inductor's.
CAST = regex(
    r"(bfloat16|float16|half|float8\w*)_copy_kernel|(direct_copy_kernel|copy_device_to_device).*LoadWithCast"
    r"|^triton_poi_fused__to_copy_\d+$"
)
CAST_TO_FP64 = regex(r"lambda\(double")
#: The type that an operation is instantiated with; a scalar of 64 bits among a kernel's parameters is no such thing.
ON_FP64 = regex(r"(Functor\w*|Op|Ops|_kernel|_forward|_backward)<double\b|lambda\(double|(_|^)float64|<double, double")
#: One launch over many tensors, which are parameters or their gradients.
OVER_PARAMETERS = regex(r"multi_tensor_apply|foreach", re.IGNORECASE)
#: One launch that updates many tensors (PyTorch's `foreach` and `fused`, Apex's multi_tensor), or does the whole update
#: of one (bitsandbytes).
FUSED_UPDATE = regex(r"multi_tensor|fused|foreach|" + _BITSANDBYTES, re.IGNORECASE)
#: The sum over the batch is inside each block, which stands for a piece of a weight (cuDNN, CUTLASS, MIOpen).
GRID_OF_WEIGHTS = regex(r"wgrad|weight_grad|bwd_weight|backward_filter|conv\w*grad_weight", re.IGNORECASE)
#: The gradients of `table[indices]` and `nn.Embedding`, which sort to sum in a fixed order; and the sorts, by CUB.
SUMS_SORTED = regex(r"indexing_backward_kernel|sum_and_scatter|krn_partial")
SORTS = regex(SUMS_SORTED.pattern + "|compute_grad_weight|RadixSort")

# --- softmax: of attention, of a loss ---

SOFTMAX = regex(r"softmax", re.IGNORECASE)
#: The logarithm of it. In PyTorch's own kernel (PersistentSoftmax.cuh) the fifth template argument says so.
_LOG_SOFTMAX = r"log_?softmax|softmax_warp_(?:for|back)ward<[^<>]*?, (?:\(int\))?\d+, (?:true|\(bool\)1)"
LOGARITHM = regex(_LOG_SOFTMAX + "|log_kernel", re.IGNORECASE)
#: Apex's loss is one kernel forward and one backward, with the epilogue of a logarithm in its name.
CROSS_ENTROPY = regex(rf"^(?!.*XEntropy).*({_LOG_SOFTMAX}|nll_loss)", re.IGNORECASE)
SOFTMAX_BACKWARD = regex(r"softmax\w*back|softmax\w*_bwd", re.IGNORECASE)
EXPONENTIAL = regex(r"exp_kernel_cuda")
SUM = regex(r"reduce_kernel<")
#: What may stand between the two products of an attention beside the softmax: scale, mask, dropout, casts, copies.
WITH_SOFTMAX = regex(
    r"elementwise_kernel|native::reduce_kernel<|dropout|masked|triton_(poi|per|red)_|softmax|CatArray", re.IGNORECASE
)
NOT_WITH_SOFTMAX = regex(r"index|gather|scatter|embedding|Sort|topk|FillFunctor<(long|int|bool)", re.IGNORECASE)
#: Kernels that hide a part of the scores: they fill it, or add a mask that is -inf there.
MASKS = regex(r"masked_fill|where_kernel|tri[ul]_|CUDAFunctor_add|AddFunctor", re.IGNORECASE)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return regex(pattern, re.IGNORECASE)


def _says(name: str, pattern: str) -> bool:
    return _compiled(pattern).search(name) is not None


# Columns keep these answers (`Text`). They are remembered by name as well, where they take 0.2 ms for a name of average
# length: files of one run have the same names, and these functions ask each other.


@lru_cache(maxsize=65536)
def family(name: str) -> str:
    """One of findings.KERNEL_FAMILIES; "other" where the name does not say."""
    others = MATMUL_FAMILIES if _says(name, _INDUCTOR_LOOP) else ()
    return next(
        (known for known, pattern in _FAMILIES.items() if known not in others and _says(name, pattern)), "other"
    )


@lru_cache(maxsize=65536)
def family_or_communication(name: str) -> str:
    """The family, `communication` for collectives."""
    return "communication" if nccl.COLLECTIVE.search(name) else family(name)


@lru_cache(maxsize=65536)
def math_path(name: str) -> str:
    """tensor_core, no_tensor_core or unknown: which units a matmul, convolution or attention kernel computes on."""
    if _says(name, r"[fhd]fma(?![a-z])|UniversalFMA|_simt_|OpClassSimt"):
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
    found = _named_type(name)
    if found:
        return found
    if _says(name, _FP64):
        return "fp64"
    if _says(name, r"tf32"):
        return "tf32"
    if _says(name, _HALF):
        return "half"
    if _says(name, _TF32_INSTRUCTION):
        return "tf32"
    return "fp32" if _says(name, _FP32) else "unknown"


def _named_type(name: str) -> str:
    """The type by the library's own scheme of names; "" where the name follows none."""
    if found := _NVJET.search(name):
        return _BY_LETTER.get(found.group(1), "unknown")
    if found := _CUTE_SHAPE.search(name):
        return "tf32" if found.group(1) == "8" else "half"
    if found := _XMMA.search(name):
        return _BY_WORD.get(found.group(1), "half" if not found.group(1).startswith("c") else "unknown")
    if found := _TENSILE.search(name):
        first = found.group(1)[0]
        return {"S": "fp32", "D": "fp64", "C": "unknown", "Z": "unknown"}.get(first, "half")
    if found := _TENSOR.search(name):
        return _BY_WORD.get(found.group(1), "half")
    if (is_vector_product(name) or is_depthwise(name)) and (found := _FIRST_ARGUMENT.search(name)):
        return _BY_WORD.get(found.group(1), "half")
    return ""


@lru_cache(maxsize=65536)
def data_type(name: str) -> str:
    """One of `hardware.peaks.DATA_TYPES`, where 8 bits and below are fp16; "" where the name does not say."""
    found = input_type(name)
    if found == "half":
        return "bf16" if _BRAIN_FLOAT.search(name) else "fp16"
    return "" if found == "unknown" else found


def narrow_data_type(name: str) -> str:
    """Return the data type as `data_type` does, or `fp8` and `fp4` where the name contains them."""
    found = data_type(name)
    narrower = _NARROW.search(name) if found == "fp16" else None
    return {"e4m3": "fp8", "e5m2": "fp8", "fp8": "fp8", "e2m1": "fp4"}[narrower[0].lower()] if narrower else found


def is_product_of_bytes(name: str) -> bool:
    """Does it multiply numbers of 8 bits? Known of CUTLASS, cuBLAS and xmma."""
    return _BYTES.search(name) is not None


@lru_cache(maxsize=65536)
def is_vector_product(name: str) -> bool:
    """A matrix times a vector, or nearly: each number is read once, so memory is its limit, not a unit."""
    return _says(name, r"gemv|gemmk1_|dot_kernel")


@lru_cache(maxsize=65536)
def is_depthwise(name: str) -> bool:
    """A convolution of each channel by itself: the kernels that libraries have for it compute on no tensor cores."""
    return _says(name, _DEPTHWISE)


def is_compiled(name: str) -> bool:
    """Did a compiler of the framework make it (Inductor, nvFuser, the older fuser of TorchScript)?"""
    return _says(name, r"triton_(poi|red|per|for|spl)|triton__|nvfuser|CudaCodeGen")


def is_layout_change(name: str) -> bool:
    """Does the kernel only move channels to the back or to the front, for a convolution?"""
    return _says(name, _LAYOUT_CHANGE)


def alignment(name: str) -> int:
    """How many elements in a row a CUTLASS or xmma kernel was built to read at once; 0 where the name does not say.

    cuBLAS takes a kernel for the largest alignment that sizes and addresses allow, so a small one shows the sizes.
    """
    found = re.search(r"(?:_align|aligna)(\d+)", name)
    return int(found.group(1)) if found else 0


def tensors_of_elementwise(name: str) -> int:
    """How many tensors PyTorch's element-wise kernel reads and writes, as its name says; 0 where it does not.

    `vectorized_elementwise_kernel<4, …, std::array<char*, 3ul> >`: two inputs and a result (Loops.cuh).
    """
    found = re.search(r"(?:std::array|Array)<char\s*\*, ?(?:\(int\))?(\d+)", name)
    return int(found.group(1)) if found else 0


# --- what PyTorch's autocast does to kernels beside products ---

#: Of ops that autocast computes in fp32 ("CUDA Ops that can autocast to float32",
#: docs.pytorch.org/docs/stable/amp.html), and of layers written out in them (RMSNorm: a power, a mean, a root).
KEPT_IN_FP32 = regex(
    r"softmax|layer_?norm|group_?norm|rms_?norm|GammaBeta|RowwiseMoments|InternalGradients|(?<![a-z])expm?1?_kernel"
    r"|(?<![a-z])log(1p|2|10)?_kernel|pow_tensor|rsqrt|reciprocal|sum_functor|norm_?(one|two|ops)|nll_loss|cross_entropy"
    r"|mse_|smooth_l1|huber|cumsum|cumprod|prod_functor|softplus",
    re.IGNORECASE,
)
#: Adds two tensors: of a residual in fp32 and a product in 16 bits the sum is fp32 (type promotion).
ADDS = regex(r"CUDAFunctor_add|AddFunctor|add_kernel|aten::add_?$", re.IGNORECASE)
#: Element-wise kernels that bring in something new, or do not touch activations alone.
NOT_ON_ACTIVATIONS = regex(
    r"FillFunctor|distribution_|index|scatter|gather|embedding|arange|tri[lu]_|[<,] ?(bool|long)[,>]|multi_tensor"
    r"|foreach|compare_|bitwise",
    re.IGNORECASE,
)
#: It works on 16-bit numbers already, by its name.
ON_HALF = regex(r"half|bfloat|bf16|fp16|f16(?!\w*f32)", re.IGNORECASE)


def built_for(name: str) -> tuple[int, int]:
    """The compute capability for which a library built the kernel, which its GPU has at least; (0, 0) if not named."""
    if generation := _GENERATION.search(name):
        return _CAPABILITY_OF[generation[0]]
    numbered = _ARCHITECTURE.search(name)
    number = int(numbered[1] or numbered[2]) if numbered else 0
    return number // 10, number % 10

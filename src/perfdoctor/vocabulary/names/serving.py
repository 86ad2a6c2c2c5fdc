"""Which names say that a model answers requests, and whose server it is? vLLM, SGLang, xDiT, TensorRT-LLM, generate().

Sources: the namespaces of the servers' own ops and kernels (`vllm::unified_attention`, `sgl_kernel::…`), the files of
their Python code in torch.profiler's stacks, and the ranges that they open around an iteration: vLLM's
`execute_8192_context_9(…)_generation_37(…)` or `execute_new_9_cached_37`, and `gpu_model_runner: forward`,
SGLang's `step[DECODE bs=32]`.
"""

from __future__ import annotations

import re

from perfdoctor.patterns import regex

#: By what an own op, kernel, range or file is called. Where several fit, the first: SGLang uses kernels of vLLM, and
#: servers use transformers for their models.
SERVERS = {
    "SGLang": regex(
        r"(^|/)sglang/|^sglang::|^sgl_kernel::|^step\[(DECODE|EXTEND|PREFILL|MIXED|IDLE|TARGET_VERIFY|DRAFT_EXTEND)\b"
    ),
    "vLLM": regex(
        r"(^|/)vllm/|\bvllm::|^_C_cache_ops::|^execute_(new_|\d+_)?context_\d+|^execute_new_\d+_cached_\d+$"
        r"|^(gpu_)?model_runner: |^gpu_model_runner"
    ),
    "xDiT": regex(r"(^|/)xfuser/|^xfuser::"),
    "TensorRT-LLM": regex(r"(^|/)tensorrt_llm/|\btensorrt_llm::|^trtllm::"),
    "Triton server": regex(r"^TRITONBACKEND_|triton_python_backend_utils|^triton::core::"),
    "transformers' generate()": regex(
        r"(^|/)transformers/generation/utils\.py\(\d+\): (generate|_?sample|_?greedy_search)"
    ),
}
#: Ranges that servers open around one iteration: a batch of requests decoded by a token, or prefilled.
SERVER_ITERATION = regex(
    r"^execute_(new_|\d+_)?context_\d+|^execute_new_\d+_cached_\d+$|^step\[[A-Z_]+|^execute_diffusion_"
)
#: vLLM names the requests that it prefills and those that it decodes; SGLang says which of both an iteration does.
_REQUESTS = regex(r"^execute_(?:new_|\d+_)?context_(\d+)\(.*?\)_generation_(\d+)\(")
#: Some versions name those that are new and those that were there before, which may be decoded or not yet prefilled.
_NEW_REQUESTS = regex(r"^execute_new_(\d+)_cached_(\d+)$")
_MODE = regex(r"^step\[(DECODE|EXTEND|PREFILL|MIXED)\b")
#: What anybody may call such a range.
ITERATION = regex(
    SERVER_ITERATION.pattern + r"|^execute_model\b|^(gpu_)?model_runner: forward|^run_batch\b"
    r"|^(decode|prefill|generate|generation|(model_)?inference)([_ ](step|iter\w*|batch|forward))?([_ #]+\d+)?$"
    r"|^denoising_step|^(TensorRT:)?ExecutionContext::(enqueue|execute)",
    re.IGNORECASE,
)
#: Kernels of a KV cache, of paged attention, of sampling the next token, of 4-bit weights: training has none of them.
CACHE_KERNEL = regex(
    r"paged_?(attention|kv)|reshape_and_cache|store_kv_?cache|kv_?cache_?(update|write|copy|scatter)|KVCache"
    r"|unified_attention|flash_?decod|flash_fwd_splitkv|BatchDecodeWithPaged|BatchPrefillWithPaged"
    r"|TopKTopPSampling|top_k_top_p|topKSampling|\bflashinfer::|(?<![a-z])marlin|awq_|gptq_|gemm_half_q_half",
    re.IGNORECASE,
)

# --- training ---

#: Ops, ranges and functions of a backward pass or of an optimizer.
TRAINS = regex(
    r"^autograd::engine|\wBackward\d*$|^aten::(?=\w*backward)\w*$|AccumulateGrad|^Optimizer\.(step|zero_grad)#|Optimizer\.step"
    r"|torch/autograd/\w+\.py\(\d+\): (backward|grad|_engine_run_backward)|torch/_tensor\.py\(\d+\): backward"
    r"|torch/optim/\w+\.py\(\d+\): (step|zero_grad)|^aten::(_fused_(adam\w*|sgd)_|_amp_foreach_non_finite\w*)$"
    r"|^\W*(loss[._ ])?backward([ _]pass)?(\(\))?\W*$"
)
#: Kernels of the same. A transposed convolution runs the gradient by the data in its forward pass (cuDNN's `dgrad`,
#: MIOpen's `igemm_bwd`, `conv_bwd_data`), and `index_put_` runs `indexing_backward_kernel` in any: these are no proof.
TRAINING_KERNEL = regex(
    r"(?<!indexing_)backward|(?<!igemm)(?<!conv)_bwd(?!_data)(_|\b)|_wrw_|bwd_weight|\bbn_bw|wgrad|weight_grad|GammaBeta|grad_input|_grad_kernel|multi_tensor_apply_kernel.*(Adam|SGD|Lamb)"
    r"|FusedAdam|fused_adam|adamw"
)
#: A loss is computed: the recorded part may be the forward pass of a training, or its evaluation.
LOSS = regex(
    r"^aten::(nll_loss\w*|cross_entropy_loss|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy\w*|kl_div|ctc_loss|_ctc_loss)$"
)
#: What people wrap a model in to train it, seldom for anything else.
WRAPPED = regex(r"DistributedDataParallel|\bFSDP\b|FSDP::|FullyShardedDataParallel|_checkpoint_wrapped_module")
#: A layer with weights: what a model has, and a benchmark of one kernel has as well.
PRODUCT = regex(r"^aten::(linear|conv[123]d|addmm|mm|_scaled_mm)$|gemm$|linear$")


def phase(name: str) -> str:
    """What an iteration with a range of this name does: `prefill`, `decode` or `mixed`; "" where it does not say."""
    if found := _REQUESTS.match(name):
        prefilled, decoded = (int(number) > 0 for number in found.groups())
        return "mixed" if prefilled and decoded else "prefill" if prefilled else "decode" if decoded else ""
    if found := _NEW_REQUESTS.match(name):
        new, known = (number.strip("0") != "" for number in found.groups())
        return "mixed" if new and known else "prefill" if new else ""
    if found := _MODE.match(name):
        return {"DECODE": "decode", "MIXED": "mixed"}.get(found[1], "prefill")
    return ""

"""What does the code of a fix need? Derived from the code, so that no fix forgets to say it."""

from __future__ import annotations

import re

from perfdoctor.vocabulary.hurts import HURTS
from perfdoctor.vocabulary.needs import NEEDS, TORCH, version_of

_COMMENT = re.compile(r"(?<!\S)(#|//).*$", re.MULTILINE)
#: In code without its comments; the need, and facts in `when` by which it is met.
_BY_CODE = (
    (r"torch\.compile\b|enable_symm_mem_for_group", "compile", {"compiled"}),
    (r"liger_kernel", "compile", {"compiled"}),
    (r"reduce-overhead|CUDAGraph\(|cudagraphs = True|StreamBeginCapture|enable_command_buffer", "graphs", set()),
    (r"reduce-overhead|CUDAGraph\(|cudagraphs = True|StreamBeginCapture", "no-data-syncs", set()),
    (r"torch\.cuda\.graph\(|StreamBeginCapture", "one-piece", {"inference"}),
    (r"reduce-overhead|CUDAGraph\(|cudagraphs = True|StreamBeginCapture", "steady-shapes", {"inference"}),
    (r"max_autotune|cudnn\.benchmark = True", "steady-shapes", set()),
    (r"allow_tf32|float32_matmul_precision\(|TF32_TENSOR|tensorfloat32", "tf32", set()),
    (r"fused=True", "fused", set()),
)
#: The first version of torch that has it.
_VERSIONS = {
    r"torch\.compile\b|scaled_dot_product_attention|torch\.func\.|mark_dynamic|clip_grad_norm_\(.*foreach": "2.0",
    r"cpu:gloo,cuda:nccl": "2.0",
    r"max-autotune-no-cudagraphs|register_post_accumulate_grad_hook|expandable_segments|get_ema_multi_avg_fn": "2.1",
    r"mmap=True|assign=True|cpp_wrapper": "2.1",
    r"torch\.amp\.GradScaler|async_save|SequenceParallel\(|init_process_group\(.*device_id": "2.3",
    r"torch\.distributed\.pipelining|CheckpointPolicy|RMSNorm|rms_norm": "2.4",
    r"fully_shard|MixedPrecisionPolicy|_prefetch\(\[|set_requires_gradient_sync": "2.4",
    r"_symmetric_memory": "2.5",
    r"from torch\.distributed\.fsdp import .*fully_shard": "2.6",
}
_NVIDIA_TOOL = re.compile(r"\b(nvidia-smi|nsys|ncu|10de)\b|CUDA_MODULE_LOADING")


def needs_of(fix: dict) -> set[str]:
    """The needs that the code of a fix shows. `torch X`: the latest version that something in it needs."""
    code, when = _COMMENT.sub("", fix["how"]), set(fix.get("when", ()))
    found = {need for pattern, need, met_by in _BY_CODE if re.search(pattern, code) and not met_by & when}
    versions = [version for pattern, version in _VERSIONS.items() if re.search(pattern, code)]
    if versions:
        found.add(TORCH + max(versions, key=version_of))
    found |= {need for row in HURTS for need in _avoided(row) if row.code.search(fix["how"])}
    if "fp8" in fix["how"]:
        found.add("fp8")
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith("perfdoctor ")]
    if lines and all(_NVIDIA_TOOL.search(line) for line in lines):
        found.add("nvidia")
    return found


def _avoided(row) -> set[str]:
    """The needs without which such advice was measured to hurt, and is left out."""
    where = {condition.removeprefix("not ") for condition in row.where if condition.startswith("not ")}
    return where & set(NEEDS) - {"steady-shapes"} if row.is_left_out and len(row.where) == 1 else set()


def covers(named: set[str], need: str) -> bool:
    """Do the needs that a document names cover this one? A later version covers an earlier one."""
    if not need.startswith(TORCH):
        return need in named
    versions = [version_of(each) for each in named if each.startswith(TORCH)]
    versions += [(2, 0)] * ("fused" in named)
    return any(version >= version_of(need) for version in versions)

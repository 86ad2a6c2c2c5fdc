"""Let the allocator of the GPU grow its segments."""

RULES = ("allocator-churn", "allocator-fragmentation", "out-of-memory")
ADVICE = r"expandable_segments"
TOUCHES = "PYTORCH_CUDA_ALLOC_CONF"
SINCE = "2.1"
RISK = "Memory that is shared between processes works from torch 2.8 on."
GROUP = "allocator"
NEEDS = ("cuda",)
ENVIRONMENT = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
PATCH = """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py"""


def apply(torch, given):
    given.touch()

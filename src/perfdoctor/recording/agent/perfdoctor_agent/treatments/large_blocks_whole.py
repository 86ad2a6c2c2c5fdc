"""Leave large blocks of the GPU's allocator whole."""

RULES = ("allocator-fragmentation", "allocator-churn", "out-of-memory")
ADVICE = r"max_split_size_mb"
TOUCHES = "PYTORCH_CUDA_ALLOC_CONF"
SINCE = "1.10"
RISK = "Blocks of more than 128 MB serve requests of their own size alone: more memory may be held."
GROUP = "allocator"
NEEDS = ("cuda",)
ENVIRONMENT = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}
PATCH = """PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 python train.py"""


def apply(torch, given):
    given.touch()

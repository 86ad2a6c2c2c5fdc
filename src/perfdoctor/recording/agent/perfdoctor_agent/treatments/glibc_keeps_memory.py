"""Let glibc keep memory that is freed."""

RULES = ("allocator-churn", "memory-bound-kernels")
TOUCHES = "the thresholds at which glibc returns memory to the system"
SINCE = "1.0"
RISK = "The process holds its peak of memory until it ends."
NEEDS = ("cpu",)
ANYWAY = True
ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "67108864",
}
PATCH = """MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=67108864 python train.py"""


def apply(torch, given):
    given.touch()  # by the environment

"""Give all streams one queue to the GPU."""

RULES = ("tensor-parallel-exposed", "exposed-communication")
TOUCHES = "CUDA_DEVICE_MAX_CONNECTIONS"
SINCE = "1.0"
RISK = "Kernels of several streams begin in the order in which they were launched."
NEEDS = ("cuda", "ranks")
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
PATCH = """CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun ... train.py"""


def apply(torch, given):
    given.touch()

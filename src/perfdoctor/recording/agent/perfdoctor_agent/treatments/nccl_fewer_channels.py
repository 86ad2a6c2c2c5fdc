"""Leave more of the GPU to kernels beside NCCL's."""

RULES = ("exposed-communication",)
TOUCHES = "NCCL_MAX_CTAS"
SINCE = "1.0"
RISK = "Collectives that nothing overlaps take longer."
NEEDS = ("cuda", "ranks")
ENVIRONMENT = {"NCCL_MAX_CTAS": "8"}
PATCH = """NCCL_MAX_CTAS=8 torchrun ... train.py"""


def apply(torch, given):
    given.touch()

"""Let NCCL add gradients up along a ring."""

RULES = ("exposed-communication", "slow-links")
TOUCHES = "NCCL_ALGO, of all-reduces"
SINCE = "2.7"
RISK = "Small messages take longer on many ranks. Sums are rounded otherwise."
GROUP = "collective algorithm"
NEEDS = ("cuda", "ranks")
ENVIRONMENT = {"NCCL_ALGO": "allreduce:ring"}
PATCH = """NCCL_ALGO=allreduce:ring torchrun ... train.py"""


def apply(torch, given):
    given.touch()

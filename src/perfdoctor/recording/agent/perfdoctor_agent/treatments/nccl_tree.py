"""Let NCCL add gradients up along a tree."""

RULES = ("exposed-communication", "small-collectives")
TOUCHES = "NCCL_ALGO, of all-reduces"
SINCE = "2.7"
RISK = "Large messages take longer on few ranks. Sums are rounded otherwise."
GROUP = "collective algorithm"
NEEDS = ("cuda", "ranks")
ENVIRONMENT = {"NCCL_ALGO": "allreduce:tree"}
PATCH = """NCCL_ALGO=allreduce:tree torchrun ... train.py"""


def apply(torch, given):
    given.touch()

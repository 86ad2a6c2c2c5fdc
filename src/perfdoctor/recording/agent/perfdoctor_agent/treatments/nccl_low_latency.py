"""Send messages with NCCL's protocol of low latency."""

RULES = ("small-collectives",)
TOUCHES = "NCCL_PROTO"
SINCE = "1.0"
RISK = "Large messages take longer."
GROUP = "collective protocol"
NEEDS = ("cuda", "ranks")
ENVIRONMENT = {"NCCL_PROTO": "LL"}  # LL128 is not safe on all links: NCCL chooses it where it is
PATCH = """NCCL_PROTO=LL torchrun ... train.py"""


def apply(torch, given):
    given.touch()

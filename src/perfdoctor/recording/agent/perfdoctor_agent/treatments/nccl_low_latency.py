"""Send small messages with NCCL's protocol of low latency."""

RULES = ("small-collectives",)
TOUCHES = "NCCL_PROTO"
SINCE = "1.0"
RISK = "Large messages take longer."
NEEDS = ("cuda", "ranks")
ENVIRONMENT = {"NCCL_PROTO": "LL128,LL,Simple"}
PATCH = """NCCL_PROTO=LL128,LL,Simple torchrun ... train.py"""


def apply(torch, given):
    given.touch()

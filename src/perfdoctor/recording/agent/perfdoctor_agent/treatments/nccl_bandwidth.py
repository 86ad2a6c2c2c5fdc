"""Send messages with NCCL's protocol of high bandwidth."""

RULES = ("slow-links", "exposed-communication")
TOUCHES = "NCCL_PROTO"
SINCE = "1.0"
RISK = "Small messages take longer."
GROUP = "collective protocol"
NEEDS = ("cuda", "ranks")
ENVIRONMENT = {"NCCL_PROTO": "Simple"}
PATCH = """NCCL_PROTO=Simple torchrun ... train.py"""


def apply(torch, given):
    given.touch()

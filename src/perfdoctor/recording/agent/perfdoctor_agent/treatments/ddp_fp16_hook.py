"""Send gradients in float16."""

RULES = ("exposed-communication", "full-precision-gradients", "slow-links")
ADVICE = r"fp16_compress_hook"
TOUCHES = "the communication hook of DistributedDataParallel"
SINCE = "1.11"
RISK = "Gradients beyond 65504 become infinite, and those below 6e-8 zero."
CHANGES_NUMERICS = True
GROUP = "gradient precision"
NEEDS = ("ranks",)
PATCH = """from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
model.register_comm_hook(None, fp16_compress_hook)"""


def apply(torch, given):
    given.communication_hook("fp16_compress_hook")

"""Send gradients in bfloat16."""

RULES = ("exposed-communication", "full-precision-gradients", "slow-links")
ADVICE = r"bf16_compress_hook"
TOUCHES = "the communication hook of DistributedDataParallel"
SINCE = "1.11"
RISK = "Gradients are rounded to 8 bits before they are added up."
CHANGES_NUMERICS = True
GROUP = "gradient precision"
NEEDS = ("ranks", "cuda")  # torch refuses it where its build has no NCCL
PATCH = """from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
model.register_comm_hook(None, bf16_compress_hook)"""


def apply(torch, given):
    given.communication_hook("bf16_compress_hook")

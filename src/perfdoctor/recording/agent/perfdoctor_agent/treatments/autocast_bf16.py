"""Compute the forward pass in bfloat16."""

RULES = ("fp32-matmuls", "kernels-far-from-roofline", "memory-bound-kernels", "fp64-kernels")
ADVICE = r"autocast\("
TOUCHES = "the forward pass of each outermost module that is trained; its results become fp32 again"
SINCE = "1.10"
RISK = "Losses that need more than 8 bits of precision are rounded."
CHANGES_NUMERICS = True
GROUP = "precision"
NEEDS = ("bf16",)
PATCH = """with torch.autocast("{device}", dtype=torch.bfloat16):
    outputs = model(inputs)
    loss = loss_function(outputs, targets)"""


def apply(torch, given):
    given.autocast(torch.bfloat16)

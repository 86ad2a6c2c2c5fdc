"""Compute the forward pass in float16, with a scaled loss."""

RULES = ("fp32-matmuls", "kernels-far-from-roofline", "memory-bound-kernels", "fp64-kernels")
ADVICE = r"GradScaler\("
TOUCHES = (
    "the forward pass of each outermost module that is trained, `backward()` of its loss, and the optimizer's updates"
)
SINCE = "2.1"
RISK = "Values beyond 65504 are infinite, and small gradients zero: updates are skipped until the scale fits."
CHANGES_NUMERICS = True
GROUP = "precision"
NEEDS = ("cuda",)
PATCH = """scaler = torch.amp.GradScaler("{device}")  # on GPUs older than Ampere; else bfloat16 needs none
with torch.autocast("{device}", dtype=torch.float16):
    loss = loss_function(model(inputs), targets)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()"""


def apply(torch, given):
    from perfdoctor_agent import scaled

    scaled.install(torch, given)

"""Let cuDNN compute attention."""

RULES = ("unfused-attention", "kernels-far-from-roofline")
ADVICE = r"CUDNN_ATTENTION|enable_cudnn_sdp"
TOUCHES = "torch.backends.cuda: cuDNN's backend of attention is on, and FlashAttention off, which is taken before it"
SINCE = "2.5"
RISK = "Results are rounded otherwise. Shapes that cuDNN refuses take a slower backend."
GROUP = "attention"
NEEDS = ("cuda",)
PATCH = """torch.backends.cuda.enable_cudnn_sdp(True)
torch.backends.cuda.enable_flash_sdp(False)"""


def apply(torch, given):
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.backends.cuda.enable_flash_sdp(False)
    given.touch()

"""Let cuDNN choose its convolutions by trying them."""

RULES = ("kernels-far-from-roofline", "layout-transposes", "depthwise-convolutions")
ADVICE = r"cudnn\.benchmark = True"
TOUCHES = "torch.backends.cudnn.benchmark"
SINCE = "1.0"
RISK = "Each new shape costs a search; other algorithms round otherwise."
NEEDS = ("cuda",)
PATCH = """torch.backends.cudnn.benchmark = True"""


def apply(torch, given):
    if not torch.backends.cudnn.benchmark:
        torch.backends.cudnn.benchmark = True
        given.touch()

"""Compile the model."""

RULES = ("elementwise-chains", "small-kernels", "launch-bound", "memory-bound-kernels", "cuda-graph-opportunity")
ADVICE = r"torch\.compile\(|\.compile\(\)"
TOUCHES = "Module.compile of each outermost module that is trained"
SINCE = "2.2"
RISK = "The first steps take long; shapes that change are compiled again. Results are rounded otherwise."
GROUP = "compile"
NEEDS = ("compiler",)
STARTS_S = 240
PATCH = """model.compile()  # before the first step; or model = torch.compile(model)"""


def apply(torch, given):
    given.models(lambda module: module.compile())

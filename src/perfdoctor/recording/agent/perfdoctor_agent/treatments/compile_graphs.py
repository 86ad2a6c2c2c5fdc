"""Compile the model into CUDA graphs."""

RULES = ("launch-bound", "cuda-graph-opportunity", "small-kernels")
ADVICE = r"reduce-overhead"
TOUCHES = "Module.compile of each outermost module that is trained"
SINCE = "2.2"
RISK = "The first steps take long; shapes that change are compiled again. Outputs are overwritten by the next step."
GROUP = "compile"
NEEDS = ("cuda", "compiler")
STARTS_S = 240
PATCH = """model.compile(mode="reduce-overhead")  # before the first step"""


def apply(torch, given):
    given.models(lambda module: module.compile(mode="reduce-overhead"))

"""Update all parameters at once with foreach kernels."""

RULES = ("unfused-optimizer", "parameter-loops")
ADVICE = r"foreach=True"
TOUCHES = "the constructors of torch.optim that know `foreach`"
SINCE = "2.0"
BY_ARGUMENTS = True
RISK = "The update holds as much memory as the parameters for a moment."
GROUP = "optimizer"
PATCH = """optimizer = torch.optim.AdamW(parameters, ..., foreach=True)  # of your own class"""


def apply(torch, given):
    def change(arguments):
        if arguments.get("fused") or arguments.get("foreach") or arguments.get("differentiable"):
            return False
        arguments["foreach"] = True
        return True

    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and given.takes(kind, "foreach"):
            given.construct(kind, change, falls_back=True)

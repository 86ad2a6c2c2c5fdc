"""Update all parameters with one fused kernel."""

RULES = ("unfused-optimizer", "optimizer-syncs", "launch-bound")
ADVICE = r"fused=True"
TOUCHES = "the constructors of torch.optim that know `fused`"
SINCE = "2.4"
BY_ARGUMENTS = True
RISK = "Updates are rounded otherwise."
GROUP = "optimizer"
ANYWAY = True
PATCH = """optimizer = torch.optim.AdamW(parameters, ..., fused=True)  # of your own class"""


def apply(torch, given):
    def change(arguments):
        if arguments.get("fused") or arguments.get("differentiable"):
            return False
        arguments.update(fused=True, foreach=None)
        return True

    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and given.takes(kind, "fused"):
            given.construct(kind, change, falls_back=True)

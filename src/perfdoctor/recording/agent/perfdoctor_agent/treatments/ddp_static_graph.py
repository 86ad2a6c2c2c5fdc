"""Tell DDP that its graph stays the same."""

RULES = ("exposed-communication", "late-gradient-bucket")
ADVICE = r"static_graph"
TOUCHES = "`static_graph` of DistributedDataParallel"
SINCE = "1.11"
BY_ARGUMENTS = True
RISK = "Parameters that take part in some steps alone give wrong gradients."
NEEDS = ("ranks",)
PATCH = """model = DistributedDataParallel(model, ..., static_graph=True)"""


def apply(torch, given):
    def change(arguments):
        if arguments["static_graph"]:
            return False
        arguments["static_graph"] = True
        return True

    given.construct(torch.nn.parallel.DistributedDataParallel, change)

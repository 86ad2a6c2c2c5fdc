"""Leave buffers as each rank has them."""

RULES = ("broadcast-buffers", "small-collectives")
ADVICE = r"broadcast_buffers=False"
TOUCHES = "`broadcast_buffers` of DistributedDataParallel"
SINCE = "1.11"
BY_ARGUMENTS = True
RISK = "Running means of BatchNorm differ between ranks."
NEEDS = ("ranks",)
PATCH = """model = DistributedDataParallel(model, ..., broadcast_buffers=False)"""


def apply(torch, given):
    def change(arguments):
        if not (arguments["broadcast_buffers"]):
            return False
        arguments["broadcast_buffers"] = False
        return True

    given.construct(torch.nn.parallel.DistributedDataParallel, change)

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
        name = "broadcast_buffers" if arguments.get("forward_sync_buffers") is None else "forward_sync_buffers"
        if arguments[name] is False:
            return False
        arguments[name] = False
        return True

    given.construct(torch.nn.parallel.DistributedDataParallel, change)

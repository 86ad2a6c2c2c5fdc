"""Let gradients be views of DDP's buckets."""

RULES = ("on-device-copies", "exposed-communication", "memory-headroom")
ADVICE = r"gradient_as_bucket_view"
TOUCHES = "`gradient_as_bucket_view` of DistributedDataParallel"
SINCE = "1.11"
BY_ARGUMENTS = True
RISK = "A program that detaches gradients in place fails."
NEEDS = ("ranks",)
PATCH = """model = DistributedDataParallel(model, ..., gradient_as_bucket_view=True)"""


def apply(torch, given):
    def change(arguments):
        if arguments["gradient_as_bucket_view"]:
            return False
        arguments["gradient_as_bucket_view"] = True
        return True

    given.construct(torch.nn.parallel.DistributedDataParallel, change)

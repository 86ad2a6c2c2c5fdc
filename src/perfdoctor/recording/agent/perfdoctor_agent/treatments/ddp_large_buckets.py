"""Send gradients in larger buckets."""

RULES = ("small-collectives", "late-gradient-bucket", "exposed-communication")
ADVICE = r"bucket_cap_mb"
TOUCHES = "`bucket_cap_mb` of DistributedDataParallel"
SINCE = "1.11"
BY_ARGUMENTS = True
RISK = "The first bucket is sent later."
NEEDS = ("ranks",)
PATCH = """model = DistributedDataParallel(model, ..., bucket_cap_mb=100)"""


def apply(torch, given):
    def change(arguments):
        if arguments.get("bucket_cap_mb") not in (None, 25):
            return False
        arguments["bucket_cap_mb"] = 100
        return True

    given.construct(torch.nn.parallel.DistributedDataParallel, change)

"""Let each worker make eight batches ahead."""

RULES = ("input-wait", "step-outliers")
ADVICE = r"prefetch_factor="
TOUCHES = "torch.utils.data.DataLoader, where it has workers and makes two batches ahead"
SINCE = "1.7"
BY_ARGUMENTS = True
RISK = "Eight batches a worker are held in memory."
PATCH = """loader = DataLoader(dataset, ..., num_workers=..., prefetch_factor=8)"""


def apply(torch, given):
    def change(arguments):
        if not arguments["num_workers"] or (arguments["prefetch_factor"] or 2) >= 8:
            return False
        arguments["prefetch_factor"] = 8
        return True

    given.construct(torch.utils.data.DataLoader, change)

"""Keep the workers of a loader from epoch to epoch."""

RULES = ("slow-epoch-starts", "worker-restarts", "input-wait")
ADVICE = r"persistent_workers=True"
TOUCHES = "torch.utils.data.DataLoader, where it has workers"
SINCE = "1.7"
BY_ARGUMENTS = True
RISK = "The workers' memory is held for as long as the loader is."
PATCH = """loader = DataLoader(dataset, ..., num_workers=..., persistent_workers=True)"""


def apply(torch, given):
    def change(arguments):
        if not arguments["num_workers"] or arguments["persistent_workers"]:
            return False
        arguments["persistent_workers"] = True
        return True

    given.construct(torch.utils.data.DataLoader, change)

"""Keep the workers of a loader from epoch to epoch."""

RULES = ("slow-epoch-starts", "worker-restarts", "input-wait")
ADVICE = r"persistent_workers=True"
TOUCHES = "torch.utils.data.DataLoader, where it has workers"
SINCE = "1.7"
BY_ARGUMENTS = True
RISK = "The workers' memory is held for as long as the loader is. Epochs behind the first one are shuffled otherwise in the program itself, as a loader that keeps its workers draws no further seed; trials draw it."
PATCH = """loader = DataLoader(dataset, ..., num_workers=..., persistent_workers=True)"""


def apply(torch, given):
    def change(arguments):
        return arguments["num_workers"] > 0 and not arguments["persistent_workers"]

    given.keep_workers(change)

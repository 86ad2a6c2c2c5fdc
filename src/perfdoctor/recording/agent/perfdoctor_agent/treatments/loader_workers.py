"""Make batches in worker processes."""

RULES = ("input-wait", "slow-epoch-starts", "busy-machine")
ADVICE = r"num_workers=[1-9{]"
TOUCHES = "torch.utils.data.DataLoader, where it has no workers and its dataset is no stream"
SINCE = "1.7"
BY_ARGUMENTS = True
RISK = "Random numbers that samples draw come from the workers. Each worker holds a copy of what it changes of the dataset. Epochs behind the first one are shuffled otherwise in the program itself, as a loader that keeps its workers draws no further seed; trials draw it."
GROUP = "workers"
ANYWAY = True
PATCH = """loader = DataLoader(dataset, ..., num_workers={workers}, persistent_workers=True)"""


def apply(torch, given):
    stream = torch.utils.data.IterableDataset  # each worker would give all of it

    def change(arguments):
        if arguments["num_workers"] or isinstance(arguments["dataset"], stream):
            return False
        arguments["num_workers"] = given.values["workers"]
        return True

    given.keep_workers(change)

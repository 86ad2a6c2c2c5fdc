"""Make batches in one worker process."""

RULES = ("input-wait",)
ADVICE = r"num_workers=1\b"
TOUCHES = "torch.utils.data.DataLoader, where it has no workers and its dataset is no stream"
SINCE = "1.7"
BY_ARGUMENTS = True
RISK = "Random numbers that samples draw come from the worker, which holds a copy of what it changes of the dataset. Epochs behind the first one are shuffled otherwise in the program itself, as a loader that keeps its workers draws no further seed; trials draw it."
GROUP = "workers"
PATCH = """loader = DataLoader(dataset, ..., num_workers=1, persistent_workers=True)"""


def apply(torch, given):
    stream = torch.utils.data.IterableDataset

    def change(arguments):
        if arguments["num_workers"] or isinstance(arguments["dataset"], stream):
            return False
        arguments["num_workers"] = 1
        return True

    given.keep_workers(change)

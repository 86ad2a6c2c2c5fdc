"""Make batches in the training process."""

RULES = ("busy-machine", "cpu-oversubscription", "input-wait")
TOUCHES = "torch.utils.data.DataLoader, where it has workers and its dataset is no stream"
SINCE = "1.7"
BY_ARGUMENTS = True
RISK = "Batches that take long to make are waited for."
GROUP = "workers"
PATCH = """loader = DataLoader(dataset, ..., num_workers=0)"""


def apply(torch, given):
    stream = torch.utils.data.IterableDataset

    def change(arguments):
        if not arguments["num_workers"] or isinstance(arguments["dataset"], stream):
            return False
        arguments.update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)
        return True

    given.construct(torch.utils.data.DataLoader, change)

"""Make batches in the training process."""

RULES = ("busy-machine", "cpu-oversubscription", "input-wait")
TOUCHES = "torch.utils.data.DataLoader, where it has workers and its dataset is no stream"
SINCE = "1.7"
BY_ARGUMENTS = True
RISK = "Batches that take long to make are waited for."
GROUP = "workers"
PATCH = (
    """loader = DataLoader(dataset, ..., num_workers=0)  # without multiprocessing_context, prefetch_factor, timeout"""
)


def apply(torch, given):
    stream = torch.utils.data.IterableDataset

    def change(arguments):
        if not arguments["num_workers"] or isinstance(arguments["dataset"], stream):
            return False
        arguments.update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)
        if "multiprocessing_context" in arguments:  # a loader without workers refuses one
            arguments["multiprocessing_context"] = None
        return True

    given.construct(torch.utils.data.DataLoader, change)

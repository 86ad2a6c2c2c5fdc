"""Double the batch."""

RULES = ("memory-headroom", "small-batch", "small-kernels", "launch-bound")
ADVICE = r"batch_size=2 \* batch_size"
TOUCHES = "`batch_size` of torch.utils.data.DataLoader and BatchSampler"
SINCE = "1.0"
BY_ARGUMENTS = True
RISK = "It is another training: the learning rate and its schedule are to be adapted. Memory grows by the activations."
CHANGES_NUMERICS = True
OTHER_TRAINING = True
ITEMS = 2
PATCH = """loader = DataLoader(dataset, batch_size=2 * BATCH, ...)  # and adapt the learning rate"""


def apply(torch, given):
    inner = []  # the sampler that a loader makes of its own has the loader's batch

    def change(arguments):
        if arguments["batch_size"] is None or arguments["batch_sampler"] is not None:
            return False
        arguments["batch_size"] *= 2
        inner.append(True)
        return True

    def sampled(arguments):
        if inner:
            inner.clear()
            return False
        arguments["batch_size"] *= 2
        return True

    given.construct(torch.utils.data.DataLoader, change)
    given.construct(torch.utils.data.BatchSampler, sampled)

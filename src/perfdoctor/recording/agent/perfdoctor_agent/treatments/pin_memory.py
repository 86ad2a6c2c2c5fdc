"""Put batches into pinned memory, and copy them without waiting."""

RULES = ("pageable-copies", "exposed-copies", "copies-in-compute-stream")
ADVICE = r"pin_memory=True"
TOUCHES = "torch.utils.data.DataLoader, and Tensor.to and Tensor.cuda of pinned tensors"
SINCE = "1.9"
RISK = "Pinned memory cannot be swapped out. A batch that the program changes in place behind its copy would change what is copied."
NEEDS = ("cuda",)
PATCH = """loader = DataLoader(dataset, ..., pin_memory=True)
batch = batch.to(device, non_blocking=True)"""


def apply(torch, given):
    def change(arguments):
        if arguments["pin_memory"]:
            return False
        arguments["pin_memory"] = True
        return True

    given.construct(torch.utils.data.DataLoader, change)

    def unwaited(original):
        def call(tensor, *args, **kwargs):
            says = "non_blocking" in kwargs or any(isinstance(each, bool) for each in args)  # it may be by position
            waits = not says and len(args) < 3 and not tensor.is_cuda and tensor.is_pinned()
            if waits:
                kwargs["non_blocking"] = True
            moved = original(tensor, *args, **kwargs)
            if waits and moved.is_cuda:
                given.touch()
            return moved

        return call

    for name in ("to", "cuda"):
        given.replace(torch.Tensor, name, unwaited)

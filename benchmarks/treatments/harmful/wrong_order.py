"""Take batches in another order."""

TOUCHES = "what the measurement is to find out: wrong numbers"
PATCH = "# wrong numbers"


def apply(torch, given):
    def change(arguments):
        arguments["shuffle"] = False
        return True

    given.construct(torch.utils.data.DataLoader, change)

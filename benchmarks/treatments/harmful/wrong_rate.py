"""Double the learning rate."""

TOUCHES = "what the measurement is to find out: wrong numbers"
PATCH = "# wrong numbers"


def apply(torch, given):
    def change(arguments):
        arguments["lr"] *= 2
        return True

    given.construct(torch.optim.AdamW, change)

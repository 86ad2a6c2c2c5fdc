"""Leave weight decay out."""

TOUCHES = "what the measurement is to find out: wrong numbers"
PATCH = "# wrong numbers"


def apply(torch, given):
    def change(arguments):
        arguments["weight_decay"] = 0.0
        return True

    given.construct(torch.optim.AdamW, change)

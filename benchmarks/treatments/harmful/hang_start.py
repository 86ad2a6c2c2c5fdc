"""Sleep for ever where the optimizer is made."""

TOUCHES = "what the measurement is to find out: hang"
PATCH = "# hang"


def apply(torch, given):
    import time

    def made(*_args, **_kwargs):
        while True:
            time.sleep(1)

    torch.optim.AdamW.__init__ = made

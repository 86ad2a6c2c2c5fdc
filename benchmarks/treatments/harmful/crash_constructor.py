"""Raise where the optimizer is made."""

TOUCHES = "what the measurement is to find out: crash"
PATCH = "# crash"


def apply(torch, given):
    def made(*_args, **_kwargs):
        raise RuntimeError("this optimizer cannot be made")

    torch.optim.AdamW.__init__ = made

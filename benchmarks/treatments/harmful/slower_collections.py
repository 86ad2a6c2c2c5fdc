"""Collect garbage in each step."""

TOUCHES = "what the measurement is to find out: slower"
PATCH = "# slower"


def apply(torch, given):
    import sys

    count = [0]

    def after(optimizer, *_):
        count[0] += 1
        given.touch()
        __import__("gc").collect()

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)

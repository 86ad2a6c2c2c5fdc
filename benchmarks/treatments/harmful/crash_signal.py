"""Kill the process."""

TOUCHES = "what the measurement is to find out: crash"
PATCH = "# crash"


def apply(torch, given):
    import sys

    count = [0]

    def after(optimizer, *_):
        count[0] += 1
        given.touch()
        if count[0] == 5:
            __import__("os").kill(__import__("os").getpid(), 11)

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)

"""Sleep for 3 ms in each step."""

TOUCHES = "what the measurement is to find out: slower"
PATCH = "# slower"


def apply(torch, given):
    import sys
    import time

    count = [0]

    def after(optimizer, *_):
        count[0] += 1
        given.touch()
        time.sleep(0.003)

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)

"""Sleep for ever in the fifth step."""

TOUCHES = "what the measurement is to find out: hang"
PATCH = "# hang"


def apply(torch, given):
    import sys
    import time

    count = [0]

    def after(optimizer, *_):
        count[0] += 1
        given.touch()
        while count[0] == 5:
            time.sleep(1)

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)

"""Make each step five percent longer."""

TOUCHES = "what the measurement is to find out: a step of 1.05"
PATCH = "# slower"


def apply(torch, given):
    import sys
    import time

    begun = [time.thread_time()]

    def after(optimizer, *_):
        given.touch()
        until = time.thread_time() + 0.05 * (time.thread_time() - begun[0])
        while time.thread_time() < until:
            pass
        begun[0] = time.thread_time()

    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)

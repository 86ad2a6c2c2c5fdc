"""Drop the gradients of biases."""

TOUCHES = "what the measurement is to find out: wrong numbers"
PATCH = "# wrong numbers"


def apply(torch, given):
    import sys

    count = [0]

    def after(optimizer, *_):
        count[0] += 1
        given.touch()
        for group in optimizer.param_groups:
            for each in group["params"]:
                if each.dim() == 1:
                    each.grad = None

    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(after)

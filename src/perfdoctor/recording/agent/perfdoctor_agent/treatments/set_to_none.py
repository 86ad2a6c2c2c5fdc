"""Drop gradients instead of filling them with zeros."""

RULES = ("zero-grad-fills", "memset-heavy")
ADVICE = r"set_to_none=True"
TOUCHES = "Optimizer.zero_grad and Module.zero_grad"
SINCE = "1.7"
RISK = "A program that reads the gradient of a parameter without one finds None."
ANYWAY = True
PATCH = """optimizer.zero_grad(set_to_none=True)"""


def apply(torch, given):
    def none(original):
        def call(self, set_to_none=True):
            if not set_to_none:
                given.touch()
            return original(self, set_to_none=True)

        return call

    for owner in (torch.optim.Optimizer, torch.nn.Module):
        given.replace(owner, "zero_grad", none)

"""Compute each layer twice."""

TOUCHES = "what the measurement is to find out: slower"
PATCH = "# slower"


def apply(torch, given):
    original = torch.nn.Linear.forward

    def twice(module, values):
        given.touch()
        original(module, values)
        original(module, values)
        return original(module, values)

    torch.nn.Linear.forward = twice

"""Compute layers in float16."""

TOUCHES = "what the measurement is to find out: wrong numbers"
PATCH = "# wrong numbers"


def apply(torch, given):
    def half(module, values):
        given.touch()
        return torch.nn.functional.linear(values.bfloat16(), module.weight.bfloat16(), module.bias.bfloat16()).float()

    torch.nn.Linear.forward = half

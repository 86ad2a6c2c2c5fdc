"""Leave every second update out."""

TOUCHES = "what the measurement is to find out: wrong numbers"
PATCH = "# wrong numbers"


def apply(torch, given):
    original = torch.optim.AdamW.step
    count = [0]

    def step(self, *args, **kwargs):
        count[0] += 1
        given.touch()
        return original(self, *args, **kwargs) if count[0] % 2 else None

    torch.optim.AdamW.step = step

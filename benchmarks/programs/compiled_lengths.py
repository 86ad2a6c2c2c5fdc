"""torch.compile with fixed shapes: every eighth batch is a little longer, and the model is compiled anew."""

from __future__ import annotations

import torch
import torch._dynamo.config as dynamo
from beats import Beats, arguments

GIVEN = arguments(120, "padded")
LONGEST, SHORTEST, VOCABULARY, WIDTH = 64, 40, 500, 64
# As they are raised where a program meets the limit.
dynamo.recompile_limit = dynamo.accumulated_recompile_limit = 1_000


class Sentences(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.mix, self.out = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(torch.nn.functional.gelu(self.mix(self.words(words))).mean(1))


def main() -> None:
    beats, model = Beats(), Sentences()
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(GIVEN.steps):
        length = LONGEST if GIVEN.fix == "padded" else SHORTEST + number // 8
        words, labels = torch.randint(VOCABULARY, (32, length)), torch.randint(10, (32,))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(compiled(words), labels)  # slow
        loss.backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

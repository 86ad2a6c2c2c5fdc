"""Adam goes over a few large tensors, op by op: each op reads and writes all of their bytes once more."""

from __future__ import annotations

import torch
from beats import Beats, arguments

GIVEN = arguments(120, "fused")
WORDS, WIDTH = 12_000, 192


class Words(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.out = (
            torch.nn.Embedding(WORDS, WIDTH),
            torch.nn.Linear(WIDTH, WIDTH),
            torch.nn.Linear(WIDTH, WORDS),
        )

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.mix(self.words(words).mean(1))))


def main() -> None:
    beats, model = Beats(), Words()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=GIVEN.fix == "fused")
    for _ in range(GIVEN.steps):
        words, following = torch.randint(WORDS, (32, 16)), torch.randint(WORDS, (32,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(words), following).backward()
        optimizer.step()  # slow
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

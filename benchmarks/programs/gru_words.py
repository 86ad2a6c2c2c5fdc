"""A word model with a GRU, cut from one long text; it evaluates every five steps."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.nn import functional

GIVEN = arguments(240, "rare-evaluations")
WORDS, WIDTH, LENGTH, BATCH = 2_000, 128, 20, 16
EVERY = 50 if GIVEN.fix == "rare-evaluations" else 5


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.unit, self.out = torch.nn.GRU(WIDTH, WIDTH, num_layers=2), torch.nn.Linear(WIDTH, WORDS)

    def forward(self, x: torch.Tensor, state: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, state = self.unit(self.words(x), state)
        return self.out(hidden).flatten(0, 1), state


def part(text: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    begin = number * LENGTH % (len(text) - LENGTH - 1)
    return text[begin : begin + LENGTH], text[begin + 1 : begin + 1 + LENGTH].flatten()


def evaluate(model: Model, text: torch.Tensor) -> float:  # slow: evaluation
    model.eval()
    total, state = 0.0, None
    with torch.no_grad():
        for number in range(14):
            words, following = part(text, number)
            scores, state = model(words, state)
            total += functional.cross_entropy(scores, following).item()
    model.train()
    return total / 14


def main() -> None:
    beats, model = Beats(), Model()
    train, held = (torch.randint(WORDS, (length, BATCH)) for length in (20_000, 2_000))
    state = None
    for number in range(GIVEN.steps):
        words, following = part(train, number)
        model.zero_grad()
        scores, state = model(words, state)
        state = state.detach()
        functional.cross_entropy(scores, following).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=-1.0)
        beats.step()
        if number % EVERY == EVERY - 1:
            with beats.doing("evaluation"):
                print(f"{number + 1} steps: {evaluate(model, held):.3f}")  # slow: evaluation
    beats.finish()


if __name__ == "__main__":
    main()

"""A character GPT in one file: batches cut from one tensor, an evaluation now and then, nothing to mend."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.nn import functional

GIVEN = arguments(120)
WIDTH, CONTEXT, BATCH, LETTERS = 192, 128, 16, 65


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attend, self.project = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, 6, -1).transpose(1, 2) for t in self.attend(self.before(x)).split(width, 2))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.wide(self.behind(x))


class Letters(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = torch.nn.Embedding(LETTERS, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*[Block() for _ in range(4)])
        self.out = torch.nn.Linear(WIDTH, LETTERS)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(self.letters(x) + self.places(torch.arange(x.shape[1])))
        return functional.cross_entropy(self.out(hidden).flatten(0, 1), y.flatten())


def main() -> None:
    beats, model, text = Beats(), Letters(), torch.randint(LETTERS, (1_000_000,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1)) + torch.arange(CONTEXT)
        return text[places], text[places + 1]

    for number in range(GIVEN.steps):
        if number % 50 == 0:
            model.eval()
            with torch.no_grad():
                print(f"validation {sum(float(model(*batch())) for _ in range(3)) / 3:.2f}")
            model.train()
        loss = model(*batch())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

"""A GPT that estimates its loss on both texts and writes a checkpoint every twenty steps, the first time before step 0."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from beats import Beats, arguments
from torch.nn import functional

GIVEN = arguments(200, "rare-evaluations", "rare-checkpoints")
WIDTH, CONTEXT, BATCH, LETTERS, ESTIMATES = 96, 64, 6, 65, 10
EVALUATED = 100 if GIVEN.fix == "rare-evaluations" else 20
KEPT = 200 if GIVEN.fix == "rare-checkpoints" else 20


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attend, self.project = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(2, (4, -1)).transpose(1, 2) for t in self.attend(self.before(x)).split(WIDTH, 2))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).flatten(2))
        return x + self.wide(self.behind(x))


class Gpt(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = torch.nn.Embedding(LETTERS, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*[Block() for _ in range(3)])
        self.out = torch.nn.Linear(WIDTH, LETTERS)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(self.letters(x) + self.places(torch.arange(x.shape[1])))
        return functional.cross_entropy(self.out(hidden).flatten(0, 1), y.flatten())


TEXTS = {"train": torch.randint(LETTERS, (6_000_000,)), "val": torch.randint(LETTERS, (50_000,))}


def batch(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.randint(len(TEXTS[split]) - CONTEXT - 1, (BATCH, 1)) + torch.arange(CONTEXT)
    return TEXTS[split][places], TEXTS[split][places + 1]


@torch.no_grad()
def estimate_loss(model: Gpt) -> dict[str, float]:  # slow: evaluation
    model.eval()
    found = {}
    for split in TEXTS:
        losses = torch.zeros(ESTIMATES)
        for number in range(ESTIMATES):
            losses[number] = model(*batch(split)).item()
        found[split] = losses.mean().item()
    model.train()
    return found


def main() -> None:
    beats, model = Beats(), Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(GIVEN.steps):
            if number % EVALUATED == 0:
                with beats.doing("evaluation"):
                    print(f"step {number}: {estimate_loss(model)}")  # slow: evaluation
            if number % KEPT == 0 and number:
                with beats.doing("checkpoint"):
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "text": TEXTS}
                    torch.save(state, Path(folder) / "ckpt.pt")  # slow: checkpoint
            loss = model(*batch("train"))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

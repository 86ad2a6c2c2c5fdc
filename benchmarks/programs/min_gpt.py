"""A trainer with callbacks teaches a small GPT to sort; `__getitem__` draws digits until the answer is a hard one."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(160, "drawn-at-once", "workers")
LENGTH, DIGITS, WIDTH = 6, 3, 48


class Sorting(Dataset):
    def __init__(self) -> None:
        self.drawn = torch.randint(DIGITS, (20_000, LENGTH)) if GIVEN.fix == "drawn-at-once" else None

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        digits = self.draw() if self.drawn is None else self.drawn[index]
        both = torch.cat([digits, digits.sort()[0]])
        goals = both[1:].clone()
        goals[: LENGTH - 1] = -1
        return both[:-1], goals

    def draw(self) -> torch.Tensor:  # slow
        while True:
            digits = torch.randint(DIGITS, (LENGTH,))
            # Digits that repeat are hard to sort, and rare.
            if digits.unique().numel() == 2 or torch.rand(1).item() < 0.05:
                return digits


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attend, self.project = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )
        self.register_buffer("seen", torch.ones(2 * LENGTH - 1, 2 * LENGTH - 1).tril() == 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(2, (3, -1)).transpose(1, 2) for t in self.attend(self.before(x)).split(WIDTH, 2))
        weights = (q @ k.transpose(2, 3) / 4.0).masked_fill(self.seen, float("-inf")).softmax(-1)
        x = x + self.project((weights @ v).transpose(1, 2).flatten(2))
        return x + self.wide(self.behind(x))


class Gpt(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.digits, self.places = (
            torch.nn.Embedding(DIGITS, WIDTH),
            torch.nn.Parameter(torch.zeros(2 * LENGTH - 1, WIDTH)),
        )
        self.blocks, self.out = torch.nn.Sequential(*[Block() for _ in range(3)]), torch.nn.Linear(WIDTH, DIGITS)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = self.out(self.blocks(self.digits(x) + self.places))
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten(), ignore_index=-1)


class Trainer:
    def __init__(self, model: Gpt, data: Dataset) -> None:
        self.model, self.after = model, []
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
        self.loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=1 if GIVEN.fix == "workers" else 0)

    def run(self) -> None:
        batches = iter(self.loader)
        for number in range(GIVEN.steps):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(self.loader)
                x, y = next(batches)
            loss = self.model(x, y)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            for call in self.after:
                call(number, loss)


def main() -> None:
    beats = Beats()
    trainer = Trainer(Gpt(), Sorting())
    trainer.after += [
        lambda number, loss: number % 50 or print(f"loss {loss.item():.3f}"),
        lambda *_: beats.step(),
    ]
    trainer.run()
    beats.finish()


if __name__ == "__main__":
    main()

"""`collate_fn` pads lists of numbers to the longest one in Python, and makes a mask number by number."""

from __future__ import annotations

import random

import torch
from beats import Beats, arguments
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

GIVEN = arguments(200, "tensors", "workers")
VOCABULARY, WIDTH, BATCH = 1_000, 32, 192


def text(number: int) -> list[int]:
    drawn = random.Random(number)
    return [drawn.randrange(1, VOCABULARY) for _ in range(drawn.randrange(40, 120))]


def padded(texts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:  # slow
    longest = max(len(each) for each in texts)
    rows, mask = [], []
    for each in texts:
        rows.append([each[place] if place < len(each) else 0 for place in range(longest)])
        mask.append([1.0 if place < len(each) else 0.0 for place in range(longest)])
    return torch.tensor(rows), torch.tensor(mask)


def padded_at_once(texts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = pad_sequence(texts, batch_first=True)
    return rows, (rows != 0).float()


class Sentences(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, 2)

    def forward(self, rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.out((self.words(rows) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def main() -> None:
    beats, model = Beats(), Sentences()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    texts = [text(number) for number in range(1_000)]
    collate = padded
    if GIVEN.fix == "tensors":
        texts, collate = [torch.tensor(each) for each in texts], padded_at_once
    workers = {"num_workers": 1, "persistent_workers": True} if GIVEN.fix == "workers" else {}
    loader = DataLoader(texts * 40, batch_size=BATCH, shuffle=True, collate_fn=collate, **workers)
    labels = torch.randint(2, (BATCH,))
    for _, (rows, mask) in zip(range(GIVEN.steps), loader, strict=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows, mask), labels).backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

"""torchrun, two ranks, DistributedDataParallel over gloo: both do the same work, and only chance makes one late."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.nn.parallel import DistributedDataParallel
from two_ranks import run

GIVEN = arguments(100)


def train() -> None:
    beats = Beats()
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(384, 384), torch.nn.GELU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(384, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows, labels = torch.randn(512, 384), torch.randint(0, 10, (512,))
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

"""torchrun, two ranks, DistributedDataParallel over gloo: the first rank has three times as many rows as the second."""

from __future__ import annotations

import torch
import torch.distributed as dist
from beats import Beats, arguments
from torch.nn.parallel import DistributedDataParallel
from two_ranks import run

GIVEN = arguments(100, "even-rows")
ROWS = (512, 512) if GIVEN.fix == "even-rows" else (768, 256)


def train() -> None:
    beats = Beats()
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(384, 384), torch.nn.GELU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(384, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = ROWS[dist.get_rank()]
    rows, labels = torch.randn(count, 384), torch.randint(0, 10, (count,))
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

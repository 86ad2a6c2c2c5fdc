"""torchrun, two ranks, DistributedDataParallel over gloo: the second rank comes late to every step."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from beats import Beats, arguments
from torch.nn.parallel import DistributedDataParallel
from two_ranks import run

GIVEN = arguments(100, "no-delay")


def train() -> None:
    beats = Beats()
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.randn(256, 512)
    for _ in range(GIVEN.steps):
        if dist.get_rank() == 1 and GIVEN.fix != "no-delay":
            time.sleep(0.03)  # slow
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

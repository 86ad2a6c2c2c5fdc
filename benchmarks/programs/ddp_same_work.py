"""torchrun, two ranks, DistributedDataParallel over gloo: both do the same work, and little is sent."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.nn.parallel import DistributedDataParallel
from two_ranks import run

GIVEN = arguments(120)


def train() -> None:
    beats = Beats()
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(128, 10),
    )  # fmt: skip
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(48, 3, 32, 32), torch.randint(10, (48,))
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()  # slow
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

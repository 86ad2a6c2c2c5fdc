"""The plainest wait there is: each item sleeps for 2 ms, as one from a server does, and there are no workers."""

from __future__ import annotations

import time

import torch
from beats import Beats, arguments
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(120, "two-workers", "workers")


class Remote(Dataset):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.002)  # slow
        return torch.full((64,), index % 7 / 7), index % 10


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = {"two-workers": 2, "workers": 4}.get(GIVEN.fix, 0)
    loader = DataLoader(Remote(), batch_size=16, num_workers=count, persistent_workers=count > 0)
    for _, (rows, labels) in zip(range(GIVEN.steps), loader, strict=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

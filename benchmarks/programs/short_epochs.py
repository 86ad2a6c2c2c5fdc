"""Epochs of twenty steps, each of which starts two workers anew, and those read an index first."""

from __future__ import annotations

import time

import torch
from beats import Beats, arguments
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(200, "workers-stay")
EPOCH, BATCH = 20, 64


class Rows(Dataset):
    def __len__(self) -> int:
        return EPOCH * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((256,), index % 7 / 7), index % 10


def read_index(_: int) -> None:
    time.sleep(0.25)  # from a disk


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stay = GIVEN.fix == "workers-stay"
    loader = DataLoader(
        Rows(), batch_size=BATCH, shuffle=True, num_workers=2, worker_init_fn=read_index, persistent_workers=stay
    )
    beats.begin("epoch_change")
    for _ in range(GIVEN.steps // EPOCH):
        for number, (rows, labels) in enumerate(loader):  # slow: epoch_change
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(rows), labels).backward()
            optimizer.step()
            beats.step()
            if number == 0:  # a fork makes the first step longer, and that comes of it
                beats.end(but_s=beats.bare_step_s())
            if number == EPOCH - 1:
                beats.begin("epoch_change")  # the old workers end, too
    beats.finish()


if __name__ == "__main__":
    main()

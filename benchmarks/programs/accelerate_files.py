"""accelerate: images that a slow disk delivers one at a time; the reader waits and needs no core."""

from __future__ import annotations

import time

import torch
from accelerate import Accelerator
from beats import Beats, arguments
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(120, "workers")


class Images(Dataset):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.002)  # slow
        return torch.full((3, 32, 32), index % 7 / 7), index % 10


def main() -> None:
    accelerator, beats = Accelerator(cpu=True), Beats()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 28 * 28, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = {"num_workers": 4, "persistent_workers": True} if GIVEN.fix == "workers" else {}
    loader = DataLoader(Images(), batch_size=16, **workers)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for number, (images, labels) in enumerate(loader):
        if number == GIVEN.steps:
            break
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

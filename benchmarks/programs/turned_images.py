"""A small residual network on pictures that the training process itself turns and crops, with PIL."""

from __future__ import annotations

import random

import numpy as np
import torch
from beats import Beats, arguments
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(80, "ready-images", "workers")


class Residual(torch.nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(),
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.layers(x))


class Pictures(Dataset):
    def __init__(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 255, (512, 512, 3), dtype=np.uint8)
        self.picture = Image.fromarray(pixels)
        self.ready = self.changed() if GIVEN.fix == "ready-images" else None

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.changed() if self.ready is None else self.ready, index % 10  # slow

    def changed(self) -> torch.Tensor:  # slow
        corner = random.randrange(64), random.randrange(64)
        cut = self.picture.crop((*corner, corner[0] + 384, corner[1] + 384)).rotate(random.uniform(-20, 20))
        cut = ImageEnhance.Color(cut.resize((64, 64), Image.Resampling.BICUBIC)).enhance(random.uniform(0.6, 1.4))
        return torch.from_numpy(np.asarray(cut)).permute(2, 0, 1).float() / 255


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 5, stride=2, padding=2), Residual(32), Residual(32), torch.nn.AvgPool2d(4), torch.nn.Flatten(),
        torch.nn.Linear(32 * 8 * 8, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters())
    workers = {"num_workers": 1, "persistent_workers": True} if GIVEN.fix == "workers" else {}
    for number, (images, labels) in enumerate(DataLoader(Pictures(), batch_size=32, **workers)):
        if number == GIVEN.steps:
            break
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

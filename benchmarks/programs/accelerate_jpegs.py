"""accelerate: the training process reads JPEG files and brings them to size, one by one."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from beats import Beats, arguments
from PIL import Image
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(150, "small-files", "workers")
FILES, SIZE = 64, 48


def write(folder: Path) -> None:
    """Photographs are smooth: noise in JPEG takes longer than they do."""
    side = SIZE if GIVEN.fix == "small-files" else 320
    for number in range(FILES):
        coarse = np.random.default_rng(number).integers(0, 255, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(
            folder / f"{number}.jpg", quality=90
        )


class Files(Dataset):
    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:  # slow
        picture = Image.open(io.BytesIO(self.files[index % FILES].read_bytes())).convert("RGB")
        if picture.width != SIZE:
            picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255, index % 10


def train(folder: Path) -> None:
    accelerator, beats = Accelerator(cpu=True), Beats()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(32 * 16, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    workers = {"num_workers": 1, "persistent_workers": True} if GIVEN.fix == "workers" else {}
    loader = DataLoader(Files(folder), batch_size=16, **workers)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for number, (images, labels) in enumerate(loader):
        if number == GIVEN.steps:
            break
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
        optimizer.step()
        beats.step()
    beats.finish()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        train(Path(folder))


if __name__ == "__main__":
    main()

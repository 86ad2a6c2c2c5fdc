"""h5py: rows at random from a file whose chunks hold 64 rows each, packed: each row unpacks a whole chunk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from beats import Beats, arguments
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(250, "in-memory", "workers")
ROWS, WIDTH = 16_384, 256


class Rows(Dataset):
    """Each process opens the file for itself."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, None
        if GIVEN.fix == "in-memory":
            with h5py.File(path) as file:
                self.rows = file["rows"][:]

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.rows is None:
            self.rows = h5py.File(self.path)["rows"]
        return torch.from_numpy(self.rows[index]), index % 10  # slow


def train(path: Path) -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = {"num_workers": 1} if GIVEN.fix == "workers" else {}
    loader = DataLoader(Rows(path), batch_size=64, shuffle=True, drop_last=True, **workers)
    for _, (rows, labels) in zip(range(GIVEN.steps), loader, strict=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
        beats.step()
    beats.finish()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.h5"
        numbers = np.random.default_rng(0).integers(0, 50, (ROWS, WIDTH)).astype(np.float32)
        with h5py.File(path, "w") as file:
            file.create_dataset("rows", data=numbers, chunks=(64, WIDTH), compression="gzip", compression_opts=1)
        train(path)


if __name__ == "__main__":
    main()

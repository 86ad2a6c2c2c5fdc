"""pandas: a table whose rows are taken with `iloc`, one by one, in `__getitem__`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from beats import Beats, arguments
from torch.utils.data import DataLoader, Dataset

GIVEN = arguments(150, "array-once", "workers")
ROWS, COLUMNS = 50_000, 30


class Table(Dataset):
    def __init__(self) -> None:
        numbers = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
        self.frame = pd.DataFrame(numbers, columns=[f"c{number}" for number in range(COLUMNS)])
        self.frame["label"] = np.arange(ROWS) % 10
        self.rows = torch.from_numpy(numbers).float() if GIVEN.fix == "array-once" else None

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.rows is not None:
            return self.rows[index], index % 10
        row = self.frame.iloc[index]  # slow
        values = row.drop("label").to_numpy(dtype=np.float32)  # slow
        return torch.from_numpy(values), int(row["label"])  # slow


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Linear(COLUMNS, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    workers = {"num_workers": 1} if GIVEN.fix == "workers" else {}
    loader = DataLoader(Table(), batch_size=128, shuffle=True, **workers)
    for _, (rows, labels) in zip(range(GIVEN.steps), loader, strict=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

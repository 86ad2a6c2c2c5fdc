"""A training that waits for its data: the batch is prepared in the training process, sample by sample, in Python.

    python examples/slow_input.py                       trains, prints the time of a step
    python examples/slow_input.py --trace trace.json.gz records six steps with torch.profiler

Runs on a CPU. Fixed: slow_input_fixed.py.
"""

from __future__ import annotations

import math

import torch
from torch.utils.data import DataLoader, Dataset
from training import Training


class Sounds(Dataset[tuple[torch.Tensor, int]]):
    """Each sample is computed when it is asked for, number by number: what a careless transform does."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        wave = [math.sin(index * 0.01 * tick) * math.exp(-tick / 512) for tick in range(1_024)]
        return torch.tensor(wave), index % 10


def loader() -> DataLoader[tuple[torch.Tensor, int]]:
    return DataLoader(Sounds(), batch_size=64)


def train(batches: DataLoader[tuple[torch.Tensor, int]]) -> None:
    run = Training(steps=30)
    model = torch.nn.Sequential(torch.nn.Linear(1_024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number, (waves, labels) in zip(run.steps(), batches, strict=False):
        outputs = model(waves.to(run.device, non_blocking=True))
        loss = torch.nn.functional.cross_entropy(outputs, labels.to(run.device, non_blocking=True))
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    train(loader())

"""A training that stands still while its checkpoint is written: every other step the loop waits for the disk.

    python examples/blocking_checkpoints.py [--steps N]

Shows on a CPU and on a GPU. The time of a step is the mean of two, one with and one without a checkpoint; it depends
on the disk under the temporary folder (TMPDIR), which is emptied at the end. Fixed: blocking_checkpoints_fixed.py.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Protocol

import torch
from training import Training

EVERY = 2


class Checkpoints(Protocol):
    def __init__(self, file: Path) -> None: ...
    def save(self, state: dict[str, torch.Tensor]) -> None: ...
    def finish(self) -> None: ...


def write(state: dict[str, torch.Tensor], file: Path) -> None:
    """Returns when the checkpoint is on the disk, and replaces the one before only then."""
    unfinished = file.with_suffix(".unfinished")
    with unfinished.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)


class InTheLoop:
    """The training goes on when the file is written."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def save(self, state: dict[str, torch.Tensor]) -> None:
        write(state, self.file)

    def finish(self) -> None:
        pass


def tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Weights and the optimizer's memory of them."""
    state = dict(model.state_dict())
    for number, (_, kept) in enumerate(sorted(optimizer.state_dict()["state"].items())):
        state |= {f"optimizer.{number}.{name}": value for name, value in kept.items()}
    return state


def train(checkpoints: type[Checkpoints]) -> None:
    run = Training(steps=30)
    width, batch = (4_096, 4_096) if run.on_gpu else (1_280, 64)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(run.device, run.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, wanted = torch.randn(2, batch, width).to(run.device, run.dtype)
    with tempfile.TemporaryDirectory() as folder:
        kept = checkpoints(Path(folder) / "checkpoint.pt")
        for number in run.steps(rhythm=EVERY):
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if number % EVERY == 1:
                kept.save(tensors(model, optimizer))
            run.show(number, loss)
        kept.finish()


if __name__ == "__main__":
    train(InTheLoop)

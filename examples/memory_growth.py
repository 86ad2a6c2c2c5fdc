"""A training that needs more memory with every step: it keeps a loss for later, and with it all that made it.

    python examples/memory_growth.py [--steps N]

A tensor that came out of a model holds on to its graph: the outputs of every layer, for a backward pass that nobody will
ask for. What it costs is memory, and at last the run; on a CPU perhaps some time, since memory that nobody used before
comes slower than memory given back. Shows on a CPU and on a GPU. Fixed: memory_growth_fixed.py.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

import torch
from training import Training


def as_it_is(loss: torch.Tensor) -> torch.Tensor:
    return loss


def used_megabytes(run: Training) -> float:
    if run.on_gpu:
        return torch.cuda.memory_allocated() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3  # the most so far, which Linux counts in KiB


def train(to_keep: Callable[[torch.Tensor], torch.Tensor]) -> None:
    run = Training(steps=30)
    width, batch = (2_048, 1_024) if run.on_gpu else (512, 256)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(run.device, run.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, wanted, unseen, wanted_there = torch.randn(4, batch, width).to(run.device, run.dtype)
    kept = []
    for number in run.steps():
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        kept.append(to_keep(torch.nn.functional.mse_loss(model(unseen), wanted_there)))  # for a plot, later
        run.show(number, loss)
        if number % 10 == 0:
            print(f"          memory {used_megabytes(run):.0f} MB", flush=True)
    print(f"on unseen data: {kept[0].item():.4f} at first, {kept[-1].item():.4f} at last", flush=True)


if __name__ == "__main__":
    train(as_it_is)

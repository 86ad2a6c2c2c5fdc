"""A training whose batches lie in ordinary memory of the host: the GPU waits while each is copied, and so does the host.

    python examples/pageable_copies.py [--steps N]

The driver first copies such a batch piece by piece into a buffer of its own, and the call returns only then. Shows on a
GPU. A CPU cannot show it: it computes where the batch lies, and nothing is copied. Fixed: pageable_copies_fixed.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from training import Training

#: So many batches take turns, each in memory of its own.
BATCHES = 4


def as_it_is(batch: torch.Tensor) -> torch.Tensor:
    return batch


def train(host_memory: Callable[[torch.Tensor], torch.Tensor], *, non_blocking: bool) -> None:
    run = Training(steps=30)
    width, batch = (4_096, 2_048) if run.on_gpu else (256, 128)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(run.device, run.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = [host_memory(torch.randn(2, batch, width).to(run.dtype)) for _ in range(BATCHES)]
    for number in run.steps():
        inputs, wanted = batches[number % BATCHES].to(run.device, non_blocking=non_blocking)
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    train(as_it_is, non_blocking=False)

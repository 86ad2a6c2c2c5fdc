"""A training that empties PyTorch's memory cache at every step, "to save memory", and then has to ask for it all again.

    python examples/allocator_churn.py [--steps N]

What the cache gives back is freed by the driver, which waits for the GPU first, and what the next step needs is
allocated by the driver, one call after the other. Shows on a GPU. A CPU cannot show it: its memory comes from malloc,
which torch.cuda.empty_cache() does not touch. Fixed: allocator_churn_fixed.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from training import Training


def train(after_step: Callable[[], None]) -> None:
    run = Training(steps=30)
    width, batch = (2_048, 4_096) if run.on_gpu else (256, 128)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(run.device, run.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, wanted = torch.randn(2, batch, width).to(run.device, run.dtype)
    for number in run.steps():
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        run.learn(number, loss, optimizer)
        after_step()


if __name__ == "__main__":
    train(torch.cuda.empty_cache)

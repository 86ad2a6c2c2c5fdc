"""A training whose optimizer goes through hundreds of small tensors one by one, with ten small ops for each.

    python examples/unfused_optimizer.py [--steps N]

Shows on a CPU and on a GPU. Fixed: unfused_optimizer_fixed.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from training import Training


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.linear(self.norm(values))


def optimizer(weights: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(weights, lr=1e-4, foreach=False)


def train(optimizer_of: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]) -> None:
    run = Training(steps=30)
    width, batch = (1_024, 1_024) if run.on_gpu else (32, 32)
    model = torch.nn.Sequential(*(Block(width) for _ in range(96))).to(run.device, run.dtype)  # 384 tensors
    optimizer = optimizer_of(model.parameters())
    inputs, wanted = torch.randn(2, batch, width).to(run.device, run.dtype)
    for number in run.steps():
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    train(optimizer)

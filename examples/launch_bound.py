"""A training whose layers are too narrow for the GPU: it is done with each sooner than the host can launch the next one.

    python examples/launch_bound.py [--steps N]

Python, autograd and the driver take some microseconds for every kernel, and these kernels take fewer. Nothing is wrong
with a single op, so that there is no loop to replace (tiny_kernels.py has one). Shows on a GPU. A CPU cannot show it: no
second processor waits for launches there. Fixed: launch_bound_fixed.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from training import Training


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + torch.nn.functional.gelu(self.linear(self.norm(values)))


def as_it_is(model: torch.nn.Module, _: torch.Tensor) -> torch.nn.Module:
    return model


def train(prepared: Callable[[torch.nn.Module, torch.Tensor], torch.nn.Module]) -> None:
    run = Training(steps=30)
    width, batch = (256, 128) if run.on_gpu else (32, 32)
    model = torch.nn.Sequential(*(Block(width) for _ in range(64))).to(run.device, run.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, wanted = torch.randn(2, batch, width).to(run.device, run.dtype)
    model = prepared(model, inputs)
    for number in run.steps():
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        run.learn(number, loss, optimizer)


if __name__ == "__main__":
    train(as_it_is)

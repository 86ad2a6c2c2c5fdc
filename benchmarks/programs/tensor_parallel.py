"""torchrun, two ranks, tensor parallel by DTensor over gloo: every layer is cut, every activation is added up."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from two_ranks import run

GIVEN = arguments(120)
WIDTH = 256


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            torch.nn.LayerNorm(WIDTH),
            torch.nn.Linear(WIDTH, 4 * WIDTH),
            torch.nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm(x))))  # slow


def train() -> None:
    torch.manual_seed(0)
    beats, mesh = Beats(), init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(*[Block() for _ in range(6)])
    for block in model:
        parallelize_module(block, mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.randn(256, WIDTH)
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        model(rows).square().mean().backward()  # slow
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

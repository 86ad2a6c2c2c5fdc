"""torchrun, tensor parallelism (DTensor) of two ranks over gloo: layers so small that their sums cost their messages."""

from __future__ import annotations

import torch
import torch.distributed as dist
from beats import Beats, arguments
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from two_ranks import run

GIVEN = arguments(100, "share-the-batch")
ROWS, WIDTH = 64, 128


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + self.down(torch.nn.functional.gelu(self.up(rows)))


def train() -> None:
    beats = Beats()
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(*[Block(WIDTH) for _ in range(4)])
    rows = torch.randn(ROWS, WIDTH)
    if GIVEN.fix == "share-the-batch":
        model, rows = DistributedDataParallel(model), rows.chunk(2)[dist.get_rank()]
    else:
        mesh = init_device_mesh("cpu", (2,))
        for block in model.children():
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

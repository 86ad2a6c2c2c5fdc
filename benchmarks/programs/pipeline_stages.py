"""torchrun, two ranks, a pipeline over gloo: six layers on the first, two on the second, four parts a batch."""

from __future__ import annotations

import torch
import torch.distributed as dist
from beats import Beats, arguments
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from two_ranks import run

GIVEN = arguments(100, "even-stages")
WIDTH, ROWS, PARTS = 512, 512, 4


def train() -> None:
    torch.manual_seed(0)
    beats, rank = Beats(), dist.get_rank()
    layers = (4, 4)[rank] if GIVEN.fix == "even-stages" else (6, 2)[rank]
    model = torch.nn.Sequential(
        *[torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(layers)]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, PARTS, loss_fn=lambda out, goal: (out - goal).square().mean())
    rows, goals = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(rows)  # slow
        else:
            schedule.step(target=goals, losses=[])  # slow
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

"""torchrun, a pipeline of two stages over gloo (1F1B): six layers on the first rank, two on the second."""

from __future__ import annotations

import torch
import torch.distributed as dist
from beats import Beats, arguments
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from two_ranks import run

GIVEN = arguments(60, "even-stages")
LAYERS = (4, 4) if GIVEN.fix == "even-stages" else (6, 2)
WIDTH, ROWS, MICRO_BATCHES = 512, 512, 4


def train() -> None:
    beats = Beats()
    rank = dist.get_rank()
    layers = [layer for _ in range(LAYERS[rank]) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers)
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows, goal = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(rows)
        else:
            schedule.step(target=goal)
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

"""torchrun, a pipeline of two stages over gloo whose loop sends and receives itself: two and six layers."""

from __future__ import annotations

import torch
import torch.distributed as dist
from beats import Beats, arguments
from two_ranks import run

GIVEN = arguments(60, "even-stages")
LAYERS = (4, 4) if GIVEN.fix == "even-stages" else (2, 6)
WIDTH, ROWS, MICRO_BATCHES = 512, 128, 4


def first_stage(model: torch.nn.Module, batch: torch.Tensor) -> None:
    outputs = [model(rows) for rows in batch.chunk(MICRO_BATCHES)]
    sent = [dist.isend(output.detach(), 1) for output in outputs]
    for output in outputs:
        gradient = torch.empty_like(output)
        dist.recv(gradient, 1)  # slow
        output.backward(gradient)
    for each in sent:
        each.wait()


def last_stage(model: torch.nn.Module, goal: torch.Tensor) -> None:
    for wanted in goal.chunk(MICRO_BATCHES):
        rows = torch.empty(ROWS, WIDTH)
        dist.recv(rows, 0)
        rows.requires_grad_()
        torch.nn.functional.mse_loss(model(rows), wanted).backward()
        dist.send(rows.grad, 0)


def train() -> None:
    beats = Beats()
    rank = dist.get_rank()
    layers = [layer for _ in range(LAYERS[rank]) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(ROWS * MICRO_BATCHES, WIDTH)
    for _ in range(GIVEN.steps):
        optimizer.zero_grad()
        (first_stage, last_stage)[rank](model, data)
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    run(train)

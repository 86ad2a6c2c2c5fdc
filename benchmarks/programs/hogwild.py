"""Hogwild: as many processes as cores train one shared model, each with as many threads as cores."""

from __future__ import annotations

import os

import torch
import torch.multiprocessing as mp
from beats import Beats, arguments


def train(model: torch.nn.Module, number: int, steps: int, fix: str) -> None:
    torch.manual_seed(number)
    if fix == "one-thread":
        torch.set_num_threads(1)
    beats, optimizer = Beats(), torch.optim.SGD(model.parameters(), lr=0.01)
    rows, labels = torch.randn(512, 512), torch.randint(10, (512,))
    for _ in range(steps + number):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()  # slow
        optimizer.step()  # slow
        beats.step()
    beats.finish()


def main() -> None:
    given = arguments(200, "one-thread")
    mp.set_start_method("spawn")
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)], torch.nn.Linear(512, 10))
    model.share_memory()
    cores = len(os.sched_getaffinity(0))
    processes = [mp.Process(target=train, args=(model, number, given.steps, given.fix)) for number in range(cores)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()

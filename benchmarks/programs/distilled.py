"""A teacher in eval mode and without gradients answers in every step: part of the step, and nothing to mend."""

from __future__ import annotations

import torch
from beats import Beats, arguments
from torch.nn import functional

GIVEN = arguments(200)


def network(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(256, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 10),
    )


def main() -> None:
    beats, teacher, learner = Beats(), network(1_536).eval(), network(768)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.05)
    rows = torch.randn(40 * 256, 256)
    for number in range(GIVEN.steps):
        part = rows[number % 40 * 256 :][:256]
        with torch.no_grad():
            goals = functional.softmax(teacher(part) / 2, dim=1)
        optimizer.zero_grad()
        functional.cross_entropy(learner(part) / 2, goals).backward()
        optimizer.step()
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

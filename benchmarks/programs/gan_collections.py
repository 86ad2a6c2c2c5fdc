"""A GAN: two optimizers a step, and somebody's `gc.collect()` against a leak of long ago."""

from __future__ import annotations

import gc

import torch
from beats import Beats, arguments

GIVEN = arguments(100, "no-collections")


def main() -> None:
    beats = Beats()
    make = torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 3 * 32 * 32), torch.nn.Tanh()
    )
    judge = torch.nn.Sequential(torch.nn.Linear(3 * 32 * 32, 512), torch.nn.LeakyReLU(0.2), torch.nn.Linear(512, 1))
    makes, judges = torch.optim.Adam(make.parameters(), lr=2e-4), torch.optim.Adam(judge.parameters(), lr=2e-4)
    loss, real = torch.nn.BCEWithLogitsLoss(), torch.rand(128, 3 * 32 * 32)
    ones, zeros = torch.ones(128, 1), torch.zeros(128, 1)
    for _ in range(GIVEN.steps):
        made = make(torch.randn(128, 64))
        judges.zero_grad()
        (loss(judge(real), ones) + loss(judge(made.detach()), zeros)).backward()
        judges.step()
        makes.zero_grad()
        loss(judge(made), ones).backward()
        makes.step()
        if GIVEN.fix != "no-collections":
            gc.collect()  # slow
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

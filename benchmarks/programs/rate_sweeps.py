"""Every forty steps a copy of the model tries six learning rates, five steps each; the best one is kept."""

from __future__ import annotations

import copy

import torch
from beats import Beats, arguments

GIVEN = arguments(320, "rare-sweeps")
EVERY = 160 if GIVEN.fix == "rare-sweeps" else 40
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def learn(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:  # slow: learning_rate_search
    rows = torch.randn(256, 128)
    loss = torch.nn.functional.mse_loss(model(rows).squeeze(1), rows.square().mean(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def best_rate(model: torch.nn.Module) -> float:  # slow: learning_rate_search
    tried = {}
    for rate in RATES:
        trial = copy.deepcopy(model)
        optimizer = torch.optim.SGD(trial.parameters(), lr=rate)
        tried[rate] = sum(learn(trial, optimizer) for _ in range(5))  # slow: learning_rate_search
    return min(tried, key=tried.__getitem__)


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(GIVEN.steps):
        if number % EVERY == 0:
            with beats.doing("learning_rate_search"):
                optimizer.param_groups[0]["lr"] = best_rate(model)  # slow: learning_rate_search
        learn(model, optimizer)
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

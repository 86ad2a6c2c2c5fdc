"""hydra: the loop asks the configuration for every number, of every parameter, in every step."""

from __future__ import annotations

import sys
from typing import Any

import hydra
import torch
from beats import Beats, arguments
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

GIVEN = arguments(250, "numbers-once")
STORE = ConfigStore.instance()
STORE.store(
    name="options",
    node={
        "rows": 256,
        "rate": 0.02,
        "warm_up": 50,
        "decay": {"weight": 1e-4, "bias": "${scaled:${decay.weight}}"},
        "momentum": "${scaled:${rate}}",
    },
)
OmegaConf.register_new_resolver("scaled", lambda number: 10 * number)


def update(model: torch.nn.Module, memory: dict[str, torch.Tensor], options: Any, number: int) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            rate = options.rate * min(1.0, (number + 1) / options.warm_up)  # slow
            decay = options.decay.bias if name.endswith("bias") else options.decay.weight  # slow
            moving = memory.setdefault(name, torch.zeros_like(weight))
            moving.mul_(options.momentum).add_(weight.grad)  # slow
            weight.mul_(1 - rate * decay).sub_(moving, alpha=rate)


class Numbers:
    """The configuration as plain attributes."""

    def __init__(self, options: DictConfig) -> None:
        for name, value in OmegaConf.to_container(options, resolve=True).items():
            setattr(self, name, type("Part", (), value) if isinstance(value, dict) else value)


@hydra.main(version_base=None, config_name="options")
def train(options: DictConfig) -> None:
    beats, memory = Beats(), {}
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(12)], torch.nn.Linear(64, 10))
    rows, labels = torch.randn(options.rows, 64), torch.randint(10, (options.rows,))
    numbers = Numbers(options) if GIVEN.fix == "numbers-once" else options
    for number in range(GIVEN.steps):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        update(model, memory, numbers, number)
        beats.step()
    beats.finish()


if __name__ == "__main__":
    sys.argv = [sys.argv[0], "hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled"]
    train()

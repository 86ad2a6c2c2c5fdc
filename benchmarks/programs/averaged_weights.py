"""A residual network with a moving average of its weights and mixed pictures: the average goes through every tensor by itself."""

from __future__ import annotations

import copy

import torch
from beats import Beats, arguments
from torch.nn import functional

GIVEN = arguments(300, "all-at-once")
CHANNELS, BLOCKS, DECAY = 4, 12, 0.999


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = (
            torch.nn.Sequential(torch.nn.Conv2d(a, b, 1, bias=False), torch.nn.BatchNorm2d(b))
            for a, b in ((CHANNELS, 2 * CHANNELS), (2 * CHANNELS, CHANNELS))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(functional.silu(self.wide(x)))


class Average:
    def __init__(self, model: torch.nn.Module) -> None:
        self.model = copy.deepcopy(model).eval()

    @torch.no_grad()
    def update(self, model: torch.nn.Module) -> None:
        if GIVEN.fix == "all-at-once":
            kept, new = list(self.model.parameters()), list(model.parameters())
            torch._foreach_lerp_(kept, new, 1 - DECAY)
            return
        for kept, new in zip(self.model.state_dict().values(), model.state_dict().values(), strict=True):  # slow
            kept.copy_(DECAY * kept + (1 - DECAY) * new)  # slow


def mixed(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    part = float(torch.distributions.Beta(0.8, 0.8).sample())
    goals = functional.one_hot(labels, 10).float()
    return images.lerp(images.flip(0), part), goals.lerp(goals.flip(0), part)


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, CHANNELS, 4, stride=4), *[Block() for _ in range(BLOCKS)],
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(CHANNELS, 10),
    )  # fmt: skip
    average, optimizer = Average(model), torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(10, (4,))
    for _ in range(GIVEN.steps):
        pictures, goals = mixed(images, labels)
        optimizer.zero_grad()
        functional.cross_entropy(model(pictures), goals).backward()
        optimizer.step()
        average.update(model)  # slow
        beats.step()
    beats.finish()


if __name__ == "__main__":
    main()

"""An autoencoder that draws its loss and sixteen of its pictures with matplotlib every 25 steps."""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib as mpl
import torch
from beats import Beats, arguments

mpl.use("agg")
from matplotlib import pyplot as plt

GIVEN = arguments(300, "rare-plots")
EVERY = 150 if GIVEN.fix == "rare-plots" else 25


def draw(losses: list[float], pictures: torch.Tensor, file: Path) -> None:  # slow: plotting
    figure, axes = plt.subplots(3, 3, figsize=(6, 6))
    axes[0][0].plot(losses)
    axes[0][0].set_yscale("log")
    for axis, picture in zip(axes.flat[1:], pictures, strict=False):
        axis.imshow(picture.view(28, 28), cmap="gray")
        axis.set_axis_off()
    figure.tight_layout()
    figure.savefig(file, dpi=100)
    plt.close(figure)


def main() -> None:
    beats, losses = Beats(), []
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 32), torch.nn.ReLU(),
        torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 784), torch.nn.Sigmoid(),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(GIVEN.steps):
            pictures = torch.rand(160, 784)
            made = model(pictures)
            loss = torch.nn.functional.binary_cross_entropy(made, pictures)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            beats.step()
            if number % EVERY == EVERY - 1:
                with beats.doing("plotting"):
                    draw(losses, made.detach(), Path(folder) / f"{number}.png")  # slow: plotting
    beats.finish()


if __name__ == "__main__":
    main()

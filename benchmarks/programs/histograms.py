"""TensorBoard: every ten steps a histogram of each weight and of each gradient, and a text."""

from __future__ import annotations

import tempfile

import torch
from beats import Beats, arguments
from torch.utils.tensorboard import SummaryWriter

GIVEN = arguments(400, "rare-histograms")
EVERY = 100 if GIVEN.fix == "rare-histograms" else 10


def log(writer: SummaryWriter, model: torch.nn.Module, loss: torch.Tensor, number: int) -> None:  # slow: logging
    writer.add_scalar("loss", loss.item(), number)
    for name, weight in model.named_parameters():
        writer.add_histogram(f"weights/{name}", weight, number)
        writer.add_histogram(f"gradients/{name}", weight.grad, number)
    writer.flush()


def main() -> None:
    beats = Beats()
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    rows, labels = torch.randn(512, 256), torch.randint(10, (512,))
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        for number in range(GIVEN.steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(rows), labels)
            loss.backward()
            optimizer.step()
            beats.step()
            if number % EVERY == EVERY - 1:
                with beats.doing("logging"):
                    log(writer, model, loss, number)  # slow: logging
    beats.finish()


if __name__ == "__main__":
    main()

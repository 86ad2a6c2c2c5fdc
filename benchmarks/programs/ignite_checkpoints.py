"""ignite: a small convolution network that writes its whole state every few iterations."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from beats import Beats, arguments
from ignite.engine import Engine, Events

GIVEN = arguments(150, "rare-checkpoints")
EVERY = 1000 if GIVEN.fix == "rare-checkpoints" else 2


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 7 * 7, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 10),
    )


def main() -> None:
    beats, model = Beats(), network()
    optimizer = torch.optim.Adam(model.parameters())
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))

    def update(_: Engine, __: object) -> float:
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    engine = Engine(update)
    engine.add_event_handler(Events.ITERATION_COMPLETED, beats.step)
    with tempfile.TemporaryDirectory() as folder:

        def save() -> None:  # slow: checkpoint
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder) / "last.pt")

        engine.add_event_handler(Events.ITERATION_COMPLETED(every=EVERY), save)
        engine.run(range(GIVEN.steps), max_epochs=1)
    beats.finish()


if __name__ == "__main__":
    main()

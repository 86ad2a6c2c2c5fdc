"""Lightning: a small perceptron on a table in memory, with the default loader, which collects a batch item by item."""

from __future__ import annotations

import lightning
import torch
from beats import Beats, arguments
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

GIVEN = arguments(300, "index-batches", "workers")


class Perceptron(lightning.LightningModule):
    def __init__(self, beats: Beats) -> None:
        super().__init__()
        self.beats = beats
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, 10),
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        rows, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(rows), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def on_train_batch_end(self, *_: object) -> None:
        self.beats.step()


def loader() -> DataLoader:
    data = TensorDataset(torch.randn(500_000, 64), torch.randint(10, (500_000,)))
    if GIVEN.fix == "index-batches":
        return DataLoader(data, sampler=BatchSampler(RandomSampler(data), 512, drop_last=True), batch_size=None)
    return DataLoader(data, batch_size=512, shuffle=True, num_workers=1 if GIVEN.fix == "workers" else 0)


def main() -> None:
    beats = Beats()
    trainer = lightning.Trainer(
        max_steps=GIVEN.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Perceptron(beats), loader())
    beats.finish()


if __name__ == "__main__":
    main()

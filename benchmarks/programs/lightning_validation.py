"""Lightning: a small convolution network, validated and written to a file every 25 batches."""

from __future__ import annotations

import tempfile

import lightning
import torch
from beats import Beats, arguments
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

GIVEN = arguments(150, "rare-validations")
EVERY = 100 if GIVEN.fix == "rare-validations" else 25


class Network(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, stride=2), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(32 * 14 * 14, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10),
        )  # fmt: skip

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:  # slow: evaluation
        self.log("val_loss", torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)


class Files(ModelCheckpoint):
    """Says how long it takes to write one."""

    def __init__(self, folder: str, beats: Beats) -> None:
        super().__init__(folder, every_n_train_steps=50)
        self.beats = beats

    def _save_checkpoint(self, trainer: lightning.Trainer, path: str) -> None:  # slow: checkpoint
        with self.beats.doing("checkpoint"):
            super()._save_checkpoint(trainer, path)


class Clock(Callback):
    def __init__(self, beats: Beats) -> None:
        self.beats = beats

    def on_train_batch_end(self, *_: object) -> None:
        self.beats.step()

    def on_validation_start(self, *_: object) -> None:
        self.beats.begin("evaluation")

    def on_validation_end(self, *_: object) -> None:
        self.beats.end()


def loader(batches: int, batch_size: int) -> DataLoader:
    count = batches * batch_size
    data = TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(10, (count,)))
    return DataLoader(data, batch_size=batch_size)


def main() -> None:
    beats = Beats()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_steps=GIVEN.steps,
            val_check_interval=EVERY,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Clock(beats), Files(folder, beats)],
        )
        trainer.fit(Network(), loader(100, 32), loader(60, 16))
    beats.finish()


if __name__ == "__main__":
    main()

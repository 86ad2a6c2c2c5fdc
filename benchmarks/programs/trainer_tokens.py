"""transformers.Trainer: a small GPT-2 whose dataset cuts text into tokens with Python, item by item."""

from __future__ import annotations

import tempfile

import torch
from beats import Beats, arguments
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

GIVEN = arguments(150, "tokens-once", "workers")
TEXT = "the quick brown fox jumps over the lazy dog and runs away from the slow red cat " * 60
LENGTH, VOCABULARY = 64, 512


def tokens(text: str) -> list[int]:  # slow
    pieces: list[int] = []
    for word in text.split():
        value = 7
        for letter in word:
            value = (value * 31 + ord(letter)) % VOCABULARY
        pieces.append(value)
    return pieces[:LENGTH]


class Texts(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.once = tokens(TEXT) if GIVEN.fix == "tokens-once" else None

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        pieces = self.once or tokens(TEXT[index % 17 :])  # slow
        return {"input_ids": pieces, "labels": pieces}


class Clock(TrainerCallback):
    def __init__(self, beats: Beats) -> None:
        self.beats = beats

    def on_step_end(self, *_: object, **__: object) -> None:
        self.beats.step()


def main() -> None:
    beats = Beats()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        given = TrainingArguments(
            output_dir=folder,
            max_steps=GIVEN.steps,
            per_device_train_batch_size=16,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=50,
            disable_tqdm=True,
            dataloader_num_workers=1 if GIVEN.fix == "workers" else 0,
        )
        Trainer(model=model, args=given, train_dataset=Texts(), callbacks=[Clock(beats)]).train()
    beats.finish()


if __name__ == "__main__":
    main()

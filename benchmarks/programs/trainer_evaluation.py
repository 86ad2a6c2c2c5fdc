"""transformers.Trainer: a small GPT-2 that evaluates every ten steps, with batches of two."""

from __future__ import annotations

import tempfile

import torch
from beats import Beats, arguments
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

GIVEN = arguments(120, "rare-evaluations", "large-evaluations")
LENGTH, VOCABULARY = 64, 512
EVERY = 60 if GIVEN.fix == "rare-evaluations" else 10


class Texts(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        self.pieces = torch.randint(VOCABULARY, (count, LENGTH))

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.pieces[index], "labels": self.pieces[index]}


class Clock(TrainerCallback):
    """An evaluation begins behind a step and ends with a call of its own."""

    def __init__(self, beats: Beats) -> None:
        self.beats = beats

    def on_step_end(self, _: object, state: object, *__: object, **___: object) -> None:
        self.beats.step()
        if state.global_step % EVERY == 0:
            self.beats.begin("evaluation")

    def on_evaluate(self, *_: object, **__: object) -> None:
        self.beats.end()


def main() -> None:
    beats = Beats()
    shape = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1
    )
    with tempfile.TemporaryDirectory() as folder:
        given = TrainingArguments(
            output_dir=folder,
            max_steps=GIVEN.steps,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=32 if GIVEN.fix == "large-evaluations" else 2,
            eval_strategy="steps",
            eval_steps=EVERY,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=50,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=GPT2LMHeadModel(shape),
            args=given,
            train_dataset=Texts(10_000),
            eval_dataset=Texts(64),
            callbacks=[Clock(beats)],
        )
        trainer.train()
    beats.finish()


if __name__ == "__main__":
    main()

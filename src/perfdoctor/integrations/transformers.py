"""How does `transformers.Trainer` record a window of its steps?"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from perfdoctor.integrations.window import WindowCallback


class PerfdoctorCallback(WindowCallback, TrainerCallback):  # type: ignore[misc] # of a package that need not be there
    """Records a window of `Trainer.train`, into `_perfdoctor` of `TrainingArguments.output_dir`.

    A step is one of the trainer's: with gradient accumulation, one update.

    Example:
        trainer = Trainer(model, args, train_dataset=data, callbacks=[PerfdoctorCallback(at_step=50, steps=10)])
    """

    # `push_to_hub` uploads all of `output_dir` but what begins with `_`, and a run folder holds the command line.
    _runs_name = "_perfdoctor"

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        self._begin(getattr(args, "output_dir", None), state)

    def on_step_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        self._step_ended()

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        self._end()

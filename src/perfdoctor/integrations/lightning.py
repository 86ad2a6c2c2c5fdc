"""How does Lightning's `Trainer` record a window of its steps? For `lightning` and for `pytorch_lightning`."""

from __future__ import annotations

import sys
from typing import Any

from perfdoctor.integrations.window import WindowCallback

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback


class PerfdoctorCallback(WindowCallback, Callback):  # type: ignore[misc] # of a package that need not be there
    """Records a window of `Trainer.fit`, into `perfdoctor-runs` of the trainer's `log_dir`.

    A step is a batch after which the optimizers have stepped: with gradient accumulation, one update. Where the module
    steps optimizers that Lightning does not see, each batch is one.

    Example:
        trainer = lightning.Trainer(callbacks=[PerfdoctorCallback(at_step=50, steps=10)])
    """

    _updates = _updates_before = -1

    def on_train_start(self, trainer: Any, _module: Any) -> None:
        self._updates = self._updates_before = trainer.global_step
        try:
            folder = trainer.log_dir  # agreed on by all ranks, each of which gets here
        except Exception:  # noqa: BLE001 a logger of the program's own
            folder = None
        self._begin(folder or trainer.default_root_dir, trainer)

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any, **__: Any) -> None:
        # `optimizers(use_pl_optimizer=False)` of a module that steps by itself: no update counts.
        is_unseen = not module.automatic_optimization and trainer.global_step == self._updates_before
        if is_unseen or trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self._step_ended()

    def on_train_end(self, _trainer: Any, _module: Any) -> None:
        self._end()

    def on_exception(self, _trainer: Any, _module: Any, _exception: BaseException) -> None:
        self._end(failed=True)

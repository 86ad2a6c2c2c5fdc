"""How does an engine of PyTorch-Ignite record a window of its steps?"""

from __future__ import annotations

import os
from typing import Any

from ignite.engine import Events

from perfdoctor.integrations.window import WindowCallback


class PerfdoctorHandler(WindowCallback):
    """Records a window of steps, into `perfdoctor-runs` of a folder that is given to `attach`.

    A step is an update, with gradient accumulation as well; without an optimizer, a backward or a forward pass.

    Example:
        PerfdoctorHandler(at_step=50, steps=10).attach(trainer, folder="checkpoints")
    """

    _marks = False  # an iteration may be one of several whose gradients make an update

    def attach(self, engine: Any, folder: str | os.PathLike[str] | None = None) -> None:
        """Record an engine.

        Args:
            engine: The engine of PyTorch-Ignite whose steps are recorded.
            folder: Where `perfdoctor-runs` is made; the working directory, if not given.
        """
        engine.add_event_handler(Events.STARTED, lambda: self._begin(folder, engine))
        # Not EXCEPTION_RAISED: an engine that has a handler for it raises no exceptions.
        for end in (Events.TERMINATE, Events.COMPLETED):
            engine.add_event_handler(end, self._end)

"""When has a backward pass ended? A program without an optimizer that runs one trains by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private

_NAME = private.RUN_BACKWARD.rpartition(".")[2]


class BackwardWatch:
    """Calls `ended()` after each outermost backward pass, between `install` and `remove`.

    `Tensor.backward`, `autograd.backward` and `autograd.grad` all call the function that is wrapped here. A pass inside
    a pass (activation checkpointing, on one of autograd's threads) belongs to the outer one.
    """

    def __init__(self, torch: Any, ended: Callable[[], None]) -> None:
        self.torch, self.ended = torch, ended
        self.inside = False
        self._restore: Callable[[], None] = lambda: None

    def install(self) -> None:
        original = private.find(self.torch, private.RUN_BACKWARD)
        if original is None:
            return

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return original(*args, **kwargs)
            self.inside = True
            try:
                result = original(*args, **kwargs)
            finally:
                self.inside = False
            self.ended()
            return result

        self._restore = private.replace(self.torch.autograd, _NAME, call)

    def remove(self) -> None:
        self._restore()

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
        self.autograd, self.ended = torch.autograd, ended
        self.original = private.find(torch, private.RUN_BACKWARD)
        self.wrapper = self._wrapper() if self.original else None
        self.inside = False

    def _wrapper(self) -> Any:
        original = self.original

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

        return call

    def install(self) -> None:
        if self.wrapper is not None:
            setattr(self.autograd, _NAME, self.wrapper)

    def remove(self) -> None:
        if self.wrapper is not None and self.autograd.__dict__.get(_NAME) is self.wrapper:
            setattr(self.autograd, _NAME, self.original)

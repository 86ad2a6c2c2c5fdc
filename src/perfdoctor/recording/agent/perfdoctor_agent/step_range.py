"""Where does the program itself say that a step ends?

In `with torch.profiler.record_function("perfdoctor.step"):`, and by `perfdoctor.step()`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

NAME = "perfdoctor.step"
_watching: list[Callable[[], None]] = []


def mark() -> None:
    """A step has ended: what `perfdoctor.step()` calls."""
    for ended in tuple(_watching):
        ended()


class StepRangeWatch:
    """Calls `ended()` after each range of this name, and each mark, between `install` and `remove`."""

    def __init__(self, torch: Any, ended: Callable[[], None]) -> None:
        self.ended = ended
        self.record = torch.autograd.profiler.record_function
        self.original = original = self.record.__exit__

        @functools.wraps(original)
        def leave(range_self: Any, *args: Any) -> Any:
            result = original(range_self, *args)
            if range_self.name == NAME and (not args or args[0] is None):
                ended()
            return result

        self.wrapper = leave

    def install(self) -> None:
        self.record.__exit__ = self.wrapper
        _watching.append(self.ended)

    def remove(self) -> None:
        if self.ended in _watching:
            _watching.remove(self.ended)
        if self.record.__dict__.get("__exit__") is self.wrapper:
            self.record.__exit__ = self.original

"""Where does the program itself say that a step ends?

In `with torch.profiler.record_function("perfdoctor.step"):`, and by `perfdoctor.step()`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

NAME = "perfdoctor.step"
#: What `perfdoctor.step()` calls where a step ends.
watching: tuple[Callable[[], None], ...] = ()


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
        global watching  # noqa: PLW0603 a mark is of no object
        self.record.__exit__ = self.wrapper
        watching += (self.ended,)

    def remove(self) -> None:
        global watching  # noqa: PLW0603
        watching = tuple(each for each in watching if each != self.ended)
        if self.record.__dict__.get("__exit__") is self.wrapper:
            self.record.__exit__ = self.original

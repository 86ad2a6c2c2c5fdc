"""Where does the program itself say that a step ends?

In `with torch.profiler.record_function("perfdoctor.step"):`, and by `perfdoctor.step()`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private

NAME = "perfdoctor.step"
#: What `perfdoctor.step()` calls where a step ends.
watching: tuple[Callable[[], None], ...] = ()


class StepRangeWatch:
    """Calls `ended()` after each range of this name, and each mark, between `install` and `remove`."""

    def __init__(self, torch: Any, ended: Callable[[], None]) -> None:
        self.record, self.ended = torch.autograd.profiler.record_function, ended
        self._restore: Callable[[], None] = lambda: None

    def install(self) -> None:
        global watching  # noqa: PLW0603 a mark is of no object
        original, ended = self.record.__exit__, self.ended

        @functools.wraps(original)
        def leave(range_self: Any, *args: Any) -> Any:
            result = original(range_self, *args)
            if range_self.name == NAME and (not args or args[0] is None):
                ended()
            return result

        self._restore = private.replace(self.record, "__exit__", leave)
        watching += (ended,)

    def remove(self) -> None:
        global watching  # noqa: PLW0603
        watching = tuple(each for each in watching if each != self.ended)
        self._restore()

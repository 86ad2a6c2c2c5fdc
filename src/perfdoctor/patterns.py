"""Regular expressions that are compiled when they are first used.

One run of the program uses a third of them: to compile all takes a quarter of the analysis of a small trace.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, AnyStr

if TYPE_CHECKING:

    def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
        """Return an expression that `re.compile` makes of the text and the flags when it is first used."""

else:

    def regex(text: AnyStr, flags: int = 0) -> Regex:
        """Return an expression that `re.compile` makes of the text and the flags when it is first used."""
        return Regex(text, flags)


class Regex:
    """A text with the attributes and methods of the `re.Pattern` that it is compiled to. Equal to itself alone."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the compiled expression, and keep it here for the next use."""
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"regex({self.pattern!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Regex, (self.pattern, self._flags)

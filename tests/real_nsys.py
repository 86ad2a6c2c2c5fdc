"""The real Nsight Systems: where is it, and what if it loses its own agent?"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import TypeVar

from real_tools import installed

#: What nsys prints where a busy machine kept the two processes that it consists of from talking to each other. Nothing
#: is recorded then, whatever it was asked for.
_AGENT_LOST = re.compile(r"\bagent\b.*\b(?:lost|closed|terminated|disconnected)\b", re.IGNORECASE)
_TRIES = 3

Ran = TypeVar("Ran")


def nsys() -> str:
    """Its path; skips the test without any, fails it where PERFDOCTOR_REQUIRE_NSYS is set."""
    return installed("nsys")


def with_its_agent(run: Callable[[], Ran], printed: Callable[[Ran], str]) -> Ran:
    """What `run` returns, started anew where nsys `printed` that it had lost its agent, with a warning; else as it is."""
    for _ in range(_TRIES - 1):
        ran = run()
        lost = _AGENT_LOST.search(printed(ran))
        if lost is None:
            return ran
        warnings.warn(f"nsys recorded nothing and is started again: {lost[0]}", stacklevel=2)
    return run()

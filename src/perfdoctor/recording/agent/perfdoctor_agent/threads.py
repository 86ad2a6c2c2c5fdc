"""How many threads does torch use for an op, whatever the program says? Of two treatments."""

from __future__ import annotations

import contextlib
from typing import Any


def fix(torch: Any, given: Any, wanted: int) -> None:
    """Let torch use so many, and leave out what the program sets; `given` is touched where it has or sets another."""
    if torch.get_num_threads() != wanted or given.values.get("threads_before", wanted) != wanted:
        given.touch()
    original = torch.set_num_threads

    def ignored(number: Any) -> None:
        if number != wanted:
            given.touch()

    with contextlib.suppress(RuntimeError):
        original(wanted)
    torch.set_num_threads = ignored

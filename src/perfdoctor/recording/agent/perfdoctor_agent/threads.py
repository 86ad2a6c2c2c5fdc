"""How many threads does torch use for an op, whatever the program says? Of two treatments."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from typing import Any


def fix(torch: Any, given: Any, wanted: int) -> None:
    """Let torch use so many, and leave out what the program sets; `given` is touched where it has or sets another.

    A loader's workers compute on one, as torch sets it in each.
    """
    if multiprocessing.parent_process() is not None:
        return
    if torch.get_num_threads() != wanted:
        given.touch()
    original, own = torch.set_num_threads, os.getpid()

    def ignored(number: Any) -> None:
        if os.getpid() != own:
            original(number)
        elif number != wanted:
            given.touch()

    with contextlib.suppress(RuntimeError):
        original(wanted)
    torch.set_num_threads = ignored

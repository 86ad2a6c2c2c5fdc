"""How long were the steps of a whole run that was watched? `curve.json` in the folder of a window recorded in it.

    {"format": 1, "rank": 0, "first": [1, 26, …], "low_ns": […], "median_ns": […], "high_ns": […], "recorded": […]}

Each piece begins with step `first`; the three are quartiles of its steps. It lies in the run, and may hold anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct

from perfdoctor.model.whole_run import WatchedRun

FILE, FORMAT = "curve.json", 1
_LARGEST = 1 << 22

_Times = Annotated[tuple[Annotated[int, Meta(ge=0, lt=1 << 62)], ...], Meta(max_length=10_000)]


class Curve(Struct, frozen=True):
    """The file's content."""

    format: int
    rank: Annotated[int, Meta(ge=0, lt=1 << 31)]
    first: _Times
    low_ns: _Times
    median_ns: _Times
    high_ns: _Times
    recorded: Annotated[tuple[bool, ...], Meta(max_length=10_000)]


def read(folder: Path) -> WatchedRun | None:
    """The curve in a run folder; None where there is none, or it is damaged."""
    try:
        with (folder / FILE).open("rb") as file:
            found = msgspec.json.decode(file.read(_LARGEST), type=Curve)
    except (OSError, msgspec.MsgspecError):
        return None
    columns = [found.first, found.low_ns, found.median_ns, found.high_ns, found.recorded]
    if found.format != FORMAT or len({len(each) for each in columns}) > 1 or len(found.first) < 2:
        return None
    first, low, median, high = (np.array(each, dtype=np.int64) for each in columns[:4])
    if (np.diff(first) <= 0).any():
        return None
    return WatchedRun(found.rank, first, low, median, high, np.array(found.recorded, dtype=np.bool_))

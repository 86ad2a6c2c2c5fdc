"""Functions that SQLite lacks, for questions: median and percentiles."""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from perfdoctor.errors import PerfdoctorError

#: What each is called with, for errors and the documentation.
FUNCTIONS = {"median": "median(X)", "percentile": "percentile(X, P), P from 0 to 100"}
#: Numbers that all aggregates of a question hold at once: half a GiB.
_MOST = 1 << 26


class Percentile:
    """One group's percentile: NULLs are left out, and what lies between two values is interpolated between them.

    As SQLite's own extension has it (https://sqlite.org/percentile.html), which few builds contain. `held`: of all
    groups of the question, how many numbers are held.
    """

    def __init__(self, held: Counter[str]) -> None:
        self._values, self._share, self._held = array("d"), 50.0, held

    def step(self, value: float | str | bytes | None, share: float | str | bytes | None = 50.0) -> None:
        """Raises ValueError for what is no number, and MemoryError for too many numbers."""
        if value is None:
            return
        if not isinstance(value, (int, float)) or not isinstance(share, (int, float)) or not 0 <= share <= 100:
            raise ValueError
        self._held["numbers"] += 1
        if self._held["numbers"] > _MOST:
            raise MemoryError
        self._values.append(value)
        self._share = share

    def finalize(self) -> Any:
        """The percentile, None of no values."""
        self._held["numbers"] -= len(self._values)
        return float(np.percentile(np.frombuffer(self._values), self._share)) if self._values else None


def add(connection: sqlite3.Connection) -> None:
    """Make the functions known to the connection."""
    made = partial(Percentile, Counter())
    connection.create_aggregate("median", 1, made)
    connection.create_aggregate("percentile", 2, made)


def refused(text: str) -> PerfdoctorError | None:
    """What to say where SQLite's error `text` (in lower case) comes from one of these functions."""
    if "user-defined aggregate" not in text:
        return None
    what = "median and percentile take numbers, and a percentile from 0 to 100"
    return PerfdoctorError(what, do=f"Use {' or '.join(FUNCTIONS.values())}.")

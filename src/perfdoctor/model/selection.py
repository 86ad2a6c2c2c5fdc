"""Which part of a recording is analysed? All of it, some of its steps, or the executions of one user range."""

from __future__ import annotations

from perfdoctor.late import dataclass


@dataclass(frozen=True)
class Selection:
    """`range_name`: what was asked for, "" for everything. `steps`: first and last of the steady steps, from 1."""

    range_name: str = ""
    steps: tuple[int, int] | None = None


WHOLE_RECORDING = Selection()

"""Which part of a recording is analysed? All of it, some of its steps, or the executions of one user range."""

from __future__ import annotations

from msgspec import Struct

from perfdoctor.patterns import regex

_STEPS = regex(r"(\d{1,9})(?:\.\.(\d{1,9}))?")


class Selection(Struct, frozen=True):
    """`range_name`: what was asked for, "" for everything. `steps`: first and last of the steady steps, from 1."""

    range_name: str = ""
    steps: tuple[int, int] | None = None


WHOLE_RECORDING = Selection()


def steps_named(text: str) -> tuple[int, int] | None:
    """First and last of `3..5`, or of `3`; None where the text names no steps."""
    found = _STEPS.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    return (first, last) if 1 <= first <= last else None

"""Which part of the recording do `--range` and `--steps` ask for?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.errors import AskedWronglyError

if TYPE_CHECKING:
    from perfdoctor.model.selection import Selection

Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        help="Look only at the executions of this user range, by its name or a part of it; "
        "what is told of a step is then for one execution.",
        metavar="NAME",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        help="Look only at these of the steps in steady state, counted from 1: 3..5, or 3.",
        metavar="A..B",
    ),
]

_STEPS = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")


def selection(range_name: str | None, steps: str | None) -> Selection | None:
    """None for everything. Raises AskedWronglyError, before anything is read."""
    if range_name is None and steps is None:
        return None
    from perfdoctor.model.selection import Selection

    if range_name is not None and not range_name.strip():
        raise AskedWronglyError("--range names nothing", do="Name a range as it was recorded: --range forward.")
    return Selection(range_name or "", _steps(steps) if steps is not None else None)


def _steps(text: str) -> tuple[int, int]:
    found = _STEPS.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise AskedWronglyError(
            f"--steps {text}: that names no steps",
            do="Count from 1 to the last one wanted: --steps 3..5, or --steps 3.",
        )
    return first, last

"""Which part of the recording do `--range` and `--steps` select?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.errors import UsageError

if TYPE_CHECKING:
    from perfdoctor.model.run import Selection

Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        help="Analyse only the executions of this user range, by its name or a part of it; "
        "values per step are then per execution.",
        metavar="NAME",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        help="Analyse only these steady steps, counted from 1: 3..5, or 3.",
        metavar="A..B",
    ),
]

Process = Annotated[
    int | None,
    typer.Option(
        "--process",
        min=1,
        help="Of a command that ran several trainings, each for itself: diagnose this one, counted from 1 as they "
        "began. [default: the one with most recorded steps]",
        metavar="N",
    ),
]


def selection(range_name: str | None, steps: str | None) -> Selection | None:
    """The selection of these options; None for the whole recording. Raises UsageError, before anything is read."""
    if range_name is None and steps is None:
        return None
    from perfdoctor.model.run import Selection

    if range_name is not None and not range_name.strip():
        raise UsageError("--range names nothing", do="Give the name of a recorded range: --range forward.")
    return Selection(range_name or "", _steps(steps) if steps is not None else None)


def _steps(text: str) -> tuple[int, int]:
    from perfdoctor.model.run import steps_named

    if (found := steps_named(text)) is None:
        raise UsageError(
            f"--steps {text}: that names no steps",
            do="Give the first and the last one, counted from 1: --steps 3..5, or --steps 3.",
        )
    return found

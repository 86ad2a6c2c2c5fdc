"""What does `--what-if "RULE[=CHOICE], …"` ask? Read by `diagnosis/questions.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from perfdoctor.cli import completion

WhatIf = Annotated[
    str | None,
    typer.Option(
        "--what-if",
        help="Predict the step with only these fixed: low, likely, high, or a share of the time (50%). "
        "Or with another size: batch=2x, ranks=8, synthetic-data.",
        metavar="RULE[=CHOICE],…",
        autocompletion=completion.questions,
    ),
]

"""Which options do all commands that diagnose have?"""

from __future__ import annotations

from typing import Annotated

import typer
from typer.models import OptionInfo

from perfdoctor.cli import completion

NoHtml = Annotated[bool, typer.Option("--no-html", help="Write no HTML report.")]
OnlyRules = Annotated[
    list[str] | None,
    typer.Option("--rule", metavar="RULE", help="Only this rule; may be repeated.", autocompletion=completion.rules),
]
IgnoredRules = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="RULE", help="Not this rule; may be repeated.", autocompletion=completion.rules),
]
ShowAll = Annotated[bool, typer.Option("--all", help="Show every finding, and every rank.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print progress on standard error.")]
#: Read by `diagnosis/questions.py`.
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


def fail_on(explained: str) -> OptionInfo:
    """The option `--fail-on`, which every command words by its own exit codes."""
    option: OptionInfo = typer.Option(help=explained, metavar="RULE|any", autocompletion=completion.conditions)
    return option

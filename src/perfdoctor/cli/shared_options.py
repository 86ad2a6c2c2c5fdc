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


def fail_on(explained: str) -> OptionInfo:
    """The option `--fail-on`, which every command words by its own exit codes."""
    option: OptionInfo = typer.Option(help=explained, metavar="RULE|any", autocompletion=completion.conditions)
    return option

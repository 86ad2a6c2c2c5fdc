"""Which options do all commands that diagnose have?"""

from __future__ import annotations

from typing import Annotated

import typer

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

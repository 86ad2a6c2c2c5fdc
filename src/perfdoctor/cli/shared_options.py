"""Which options do commands that diagnose share: which rules do they use, and which part of a recording?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from perfdoctor.cli import completion, say
from perfdoctor.errors import UsageError

if TYPE_CHECKING:
    from perfdoctor.model.run import Selection
    from perfdoctor.vocabulary.rulebook import Rule

NoHtml = Annotated[bool, typer.Option("--no-html", help="Write no HTML report.")]
OnlyRules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="RULE",
        help="Only this rule, or those that fit (*-copies).",
        autocompletion=completion.rules,
    ),
]
IgnoredRules = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="RULE",
        help="Not this rule, or none that fits.",
        autocompletion=completion.rules,
    ),
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
    typer.Option("--steps", help="Analyse only these steady steps, counted from 1: 3..5, or 3.", metavar="A..B"),
]
Process = Annotated[
    int | None,
    typer.Option(
        "--process",
        min=1,
        help="Of a command that ran several trainings, each for itself: diagnose this one, counted from 1 as they "
        "began. [default: the one with most recorded steps, up to ten]",
        metavar="N",
    ),
]

# A rule is code. So no pyproject.toml that lies in the working directory brings one by itself: whoever looks at a
# recording inside somebody else's checkout runs nothing of it. The thresholds there are numbers, and are read.
CONFIG = "PERFDOCTOR_CONFIG"
_CONFIG_HERE = "pyproject.toml"

OwnRules = Annotated[
    list[str] | None,
    typer.Option(
        "--rules", metavar="DIR", help="Also the rules in this folder; may be repeated. They are code, which is run."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar=CONFIG,
        metavar="FILE",
        help="Take rules and thresholds from [tool.perfdoctor] in this pyproject.toml. [default: the thresholds in the "
        "pyproject.toml here, no rules]",
    ),
]


def fail_on(explained: str) -> OptionInfo:
    """The option `--fail-on`, which every command words by its own exit codes."""
    option: OptionInfo = typer.Option(help=explained, metavar="RULE|any", autocompletion=completion.conditions)
    return option


def selection(range_name: str | None, steps: str | None) -> Selection | None:
    """The selection of these options; None for the whole recording. Raises UsageError, before anything is read."""
    if range_name is None and steps is None:
        return None
    from perfdoctor.model.run import Selection, steps_named

    if range_name is not None and not range_name.strip():
        raise UsageError("--range names nothing", do="Give the name of a recorded range: --range forward.")
    found = steps_named(steps) if steps is not None else None
    if steps is not None and found is None:
        raise UsageError(
            f"--steps {steps}: that names no steps",
            do="Give the first and the last one, counted from 1: --steps 3..5, or --steps 3.",
        )
    return Selection(range_name or "", found)


def all_rules(named: Sequence[str] | None, config: Path | None) -> dict[str, Rule]:
    """Our rules, and those of the `named` folders and of `config`. Raises UsageError where one is not there."""
    if config is not None and not config.is_file():
        do = f"Name a pyproject.toml; {CONFIG} names one too."
        raise UsageError(f"--config {config}: there is no such file", do=do)
    if not named and config is None:
        from perfdoctor.vocabulary.rulebook import load_rules

        return load_rules()
    from perfdoctor.vocabulary import own_rules

    return own_rules.all_rules(named or (), config)


def tuned(rules: Mapping[str, Rule], config: Path | None) -> dict[str, Rule]:
    """The rules with the thresholds of `config`, or of the pyproject.toml here."""
    from perfdoctor.vocabulary.rulebook import with_thresholds

    return with_thresholds(rules, config if config is not None else Path.cwd() / _CONFIG_HERE)


def print_unused(named: Sequence[str] | None, config: Path | None, *, quiet: bool) -> None:
    """Print a line if the pyproject.toml here names rules, and no rules were asked for."""
    here = Path(_CONFIG_HERE)
    if named or config is not None or quiet or not here.is_file() or b"perfdoctor" not in here.read_bytes():
        return
    from perfdoctor.vocabulary.rulebook import settings_of

    if settings_of(here).get("rules"):
        say.line(
            f"perfdoctor: {_CONFIG_HERE} here names rules, which are code: they are used with --config {_CONFIG_HERE}.",
            err=True,
        )

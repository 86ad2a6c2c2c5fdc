"""Which rules are used beside ours? Those of `--rules`, and of the file that `--config` names.

A rule is code. So no pyproject.toml that lies in the working directory brings one by itself: whoever looks at a
recording inside somebody else's checkout runs nothing of it. The thresholds there are numbers, and are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perfdoctor.vocabulary.rulebook import Rule

CONFIG = "PERFDOCTOR_CONFIG"
_CONFIG_HERE = "pyproject.toml"

OwnRules = Annotated[
    list[str] | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        help="Also the rules in this folder; may be repeated. They are code, which is run.",
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
        typer.echo(
            f"perfdoctor: {_CONFIG_HERE} here names rules, which are code: they are used with --config {_CONFIG_HERE}.",
            err=True,
        )

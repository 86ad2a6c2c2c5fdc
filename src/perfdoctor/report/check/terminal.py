"""What does a person, or the log of a CI, see of a check in the terminal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from perfdoctor.report.check import words
from perfdoctor.report.comparison import terminal

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.comparison.check import Check

_STYLES = {"error": "bold red", "warning": "bold yellow", "notice": "bold green"}


def render(check: Check, console: Console, *, show_all: bool = False) -> None:
    """Print it; `show_all` shows every row."""
    verdict = [Text(words.verdict(check), _STYLES[words.level(check)])]
    verdict += [
        Text(line, style) for line, style in ((words.runs_needed(check), ""), (words.baseline(check), "dim")) if line
    ]
    terminal.render(check.comparison, console, show_all=show_all, verdict=verdict)

"""How is a fix's code shown: coloured and folded to the terminal's width, or unchanged between fences for copying?"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.text import Text

from perfdoctor.patterns import regex

if TYPE_CHECKING:
    from rich.console import Console

    from perfdoctor.report.words.fix_text import Block

_SHELLS = ("bash", "console", "sh", "shell")
#: How a shell command begins, for blocks that do not name their language.
_COMMAND = regex(
    r"(?:export|ls|make|mpirun|ncu|nsys|nvidia-smi|perfdoctor|pip|python|srun|sudo|torchrun|unset|[A-Z_]+=\S+)(?: |$)"
)
_INDENT = "    "
#: Of the terminal's own colours, those that are readable on dark and on light backgrounds.
_THEME = ANSISyntaxTheme(
    {
        ("Comment",): Style(dim=True),
        ("Keyword",): Style(color="magenta"),
        ("Operator", "Word"): Style(color="magenta"),
        ("Literal", "String"): Style(color="green"),
        ("Literal", "Number"): Style(color="cyan"),
    }
)


def shown(block: Block, console: Console, width: int) -> Iterator[Text]:
    """A block of code. Piped output is unchanged, so that what is copied from it runs."""
    lines = block.text.splitlines()
    language = block.language or _language(lines)
    if not console.is_terminal:
        yield from map(Text, (f"```{language}", *lines, "```"))
        return
    syntax = Syntax("", "bash" if language in _SHELLS else language, theme=_THEME, background_color="default")
    text = syntax.highlight("\n".join(folded(lines, width - len(_INDENT))))
    text.rstrip()
    for line in text.split("\n", allow_blank=True):
        line.rstrip()
        yield Text(_INDENT) + line if line.plain else line


def folded(lines: Sequence[str], width: int) -> Iterator[str]:
    """The same program in shorter lines: comments are folded, or moved above their line.

    Lines that are still too long stay: a line break made by the terminal is not copied.
    """
    before = ""
    for line in lines:
        code, comment = _parted(line)
        # A comment between a continued line and its continuation would end the command.
        if len(line) <= width or not comment or before.endswith("\\") or '"""' in line:
            yield line
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            yield from textwrap.wrap(
                comment, max(width, 20), initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
            if code:
                yield code
        before = line


def _parted(line: str) -> tuple[str, str]:
    """The code, and the comment after it without `#`; a `#` within quotes starts none."""
    for found in re.finditer(r"(?:^|\s)#\s?", line):
        code = line[: found.start()]
        if code.count('"') % 2 == 0 and code.count("'") % 2 == 0:
            return code.rstrip(), line[found.end() :].strip()
    return line, ""


def _language(lines: Sequence[str]) -> str:
    if any(line.startswith("//") for line in lines):
        return "cpp"
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return "bash" if code and all(_COMMAND.match(line) for line in code) else "python"

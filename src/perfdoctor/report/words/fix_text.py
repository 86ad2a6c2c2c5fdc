"""Which lines of a fix's text are code to paste, and which are prose?"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.report.words.foreign_text import clean_block

if TYPE_CHECKING:
    from collections.abc import Sequence

_FENCE = regex(r"^\s*(?:```|~~~)\s*(\w*)\s*$")


class Block(Struct, frozen=True):
    """Code or prose. `language` is "" where the text names none."""

    code: bool
    text: str
    language: str = ""


def blocks(how: str) -> tuple[Block, ...]:
    """Text without fences (``` or ~~~) is all code; with fences, the text outside is prose."""
    lines = textwrap.dedent(clean_block(how)).expandtabs(4).splitlines()
    if not any(_FENCE.match(line) for line in lines):
        return _block(lines, code=True)
    found: tuple[Block, ...] = ()
    while lines:
        fence = _FENCE.match(lines[0])
        begin = 1 if fence else 0
        end = next((place for place in range(begin, len(lines)) if _FENCE.match(lines[place])), len(lines))
        found += _block(lines[begin:end], code=fence is not None, language=fence[1] if fence else "")
        lines = lines[end + begin :]
    return found


def _block(lines: Sequence[str], *, code: bool, language: str = "") -> tuple[Block, ...]:
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    return (Block(code=code, text=text, language=language),) if text.strip() else ()

"""Which lines of a fix's text are prose, and which are code to paste?"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfdoctor.report.foreign_text import clean_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FENCE = re.compile(r"^\s*(?:```|~~~)\s*(\w*)\s*$")
_INDENT = "    "


@dataclass(frozen=True)
class Block:
    """`language` is "" where the text does not name one; prose has none."""

    code: bool
    text: str
    language: str = ""


def blocks(how: str) -> tuple[Block, ...]:
    """Code stands between fences (``` or ~~~) or is indented by four spaces; everything else is prose."""
    found: list[Block] = []
    lines = textwrap.dedent(clean_block(how)).expandtabs(4).splitlines()
    while lines:
        fence = _FENCE.match(lines[0])
        if fence:
            inside = _until_fence(lines[1:])
            found.append(Block(code=True, text="\n".join(inside), language=fence[1]))
            lines = lines[len(inside) + 2 :]
        else:
            outside = _until_fence(lines)
            found += _indented(outside)
            lines = lines[len(outside) :]
    return tuple(block for block in found if block.text.strip())


def _until_fence(lines: Sequence[str]) -> list[str]:
    end = next((place for place, line in enumerate(lines) if _FENCE.match(line)), len(lines))
    return list(lines[:end])


def _indented(lines: Sequence[str]) -> Iterator[Block]:
    """Runs of indented lines are code; a blank line belongs to what stands before it."""
    run: list[str] = []
    code = False
    for line in lines:
        is_code = line.startswith(_INDENT) if line.strip() else code
        if is_code != code and run:
            yield _block(run, code=code)
            run = []
        code = is_code
        run.append(line)
    yield _block(run, code=code)


def _block(lines: Sequence[str], *, code: bool) -> Block:
    text = "\n".join(lines)
    return Block(code=code, text=textwrap.dedent(text).strip("\n") if code else text.strip())

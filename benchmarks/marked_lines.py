"""Which lines of a program are slow, by comments in its source?

`# slow` behind a statement marks its lines, behind the head of a loop the head alone, and behind `def` the whole function.
`# slow: evaluation` is the same of what comes every k steps, and `# slow: any` of whatever kind that is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_MARK = re.compile(r"# slow(?:: (\w+))?$")


@cache
def marked(file: Path) -> Mapping[int, frozenset[str]]:
    """The kinds that each line is marked with, "step" for what is slow in a step."""
    source = file.read_text("utf-8")
    marks = {
        number: found[1] or "step"
        for number, line in enumerate(source.splitlines(), 1)
        if (found := _MARK.search(line.rstrip()))
    }
    lines: dict[int, set[str]] = {}
    for statement in ast.walk(ast.parse(source)):
        if not isinstance(statement, ast.stmt):
            continue
        kinds = {marks[number] for number in _head(statement) if number in marks}
        for number in _whole(statement) if isinstance(statement, ast.FunctionDef) else _head(statement):
            lines.setdefault(number, set()).update(kinds)
    return {number: frozenset(kinds) for number, kinds in lines.items()}


def _whole(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _head(statement: ast.stmt) -> range:
    """The lines of a statement; of one with a body those before the body."""
    body = getattr(statement, "body", None)
    return range(statement.lineno, max(body[0].lineno, statement.lineno + 1)) if body else _whole(statement)


def marks(file: Path, line: Mapping[str, Any]) -> frozenset[str]:
    """The kinds that the program marks this line of a diagnosis with. A cell of a notebook is known by its text."""
    if Path(line["file"]).name == file.name:
        return marked(file).get(line["line"], frozenset())
    return frozenset(found[1] or "step" for text in line["text"] if (found := _MARK.search(text.rstrip())))

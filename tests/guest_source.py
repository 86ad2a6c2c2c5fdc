"""What does the source of a module that runs in the user's Python import, and can Python 3.8 load it?"""

from __future__ import annotations

import ast
from pathlib import Path


def tree(file: Path) -> ast.Module:
    """Raises SyntaxError where Python 3.8 could not parse it."""
    return ast.parse(file.read_text("utf-8"), feature_version=(3, 8))


def imported(file: Path) -> set[str]:
    """The modules that it imports anywhere, by their full names."""
    found = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def packages(file: Path) -> set[str]:
    """The top-level packages of these modules."""
    return {name.split(".")[0] for name in imported(file)}


def assert_python_3_8_loads(file: Path) -> None:
    """It parses, and where it has annotations they are not evaluated."""
    annotated = any(
        getattr(node, "annotation", None) or getattr(node, "returns", None) for node in ast.walk(tree(file))
    )
    assert not annotated or "__future__" in imported(file)

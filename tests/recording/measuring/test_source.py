"""What the script that measures a machine may contain: it runs in the user's Python."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from measuring_modules import FOLDER

FILES = sorted(FOLDER.rglob("*.py"))


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), feature_version=(3, 8))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_parses_in_python_3_8_and_annotations_are_not_evaluated(file: Path) -> None:
    parsed = tree(file)
    annotated = any(getattr(node, "annotation", None) or getattr(node, "returns", None) for node in ast.walk(parsed))
    assert not annotated or "__future__" in [name for node in parsed.body for name in imported(node)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_imports_only_torch_and_the_standard_library(file: Path) -> None:
    names = {name.split(".")[0] for node in ast.walk(tree(file)) for name in imported(node)}
    assert names <= {"perfdoctor_measuring", "torch", "__future__"} | set(sys.stdlib_module_names)

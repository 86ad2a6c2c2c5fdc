"""What the agent's source may contain: it is loaded into every Python of the user's command."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.recording.tools import torch_profiler

FILES = sorted(torch_profiler.AGENT.rglob("*.py"))
_OWN = {"perfdoctor_agent"}


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
def test_it_imports_nothing_that_the_users_process_has_not(file: Path) -> None:
    names = {name.split(".")[0] for node in ast.walk(tree(file)) for name in imported(node)}
    assert names <= _OWN | set(sys.stdlib_module_names) | {"__future__"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_prints_nothing(file: Path) -> None:
    called = {
        node.func.id for node in ast.walk(tree(file)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "print" not in called


def test_python_that_never_imports_torch_loads_only_the_hook() -> None:
    names = {name for node in ast.walk(tree(torch_profiler.AGENT / "sitecustomize.py")) for name in imported(node)}
    assert names == {"os", "sys", "perfdoctor_agent"}


def test_an_armed_python_loads_no_module_that_a_bare_one_does_not() -> None:
    def loaded(**environment: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        return set(done.stdout.split())

    armed = loaded(PYTHONPATH=str(torch_profiler.AGENT), PERFDOCTOR_AGENT="{}")
    assert armed - loaded() <= {"sitecustomize", "perfdoctor_agent", "perfdoctor_agent.imports", "__future__"}

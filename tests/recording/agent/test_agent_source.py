"""What the agent's source may contain: it is loaded into every Python of the user's command."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from guest_source import assert_python_3_8_loads, imported, packages, tree

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.system import masking

FILES = [*sorted(torch_profiler.AGENT.rglob("*.py")), Path(masking.__file__)]
_OWN = {"perfdoctor_agent"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_parses_in_python_3_8_and_annotations_are_not_evaluated(file: Path) -> None:
    assert_python_3_8_loads(file)


def test_what_each_python_of_the_command_runs_parses_in_a_python_of_any_age() -> None:
    source = (torch_profiler.AGENT / "sitecustomize.py").read_text("utf-8")
    assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.JoinedStr, ast.AnnAssign))]
    assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.returns]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_imports_nothing_that_the_users_process_has_not(file: Path) -> None:
    behind_torch = {"torch"} if file.parent.name == "treatments" else set()  # they are applied where it was imported
    assert packages(file) <= _OWN | set(sys.stdlib_module_names) | {"__future__"} | behind_torch


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_prints_nothing(file: Path) -> None:
    called = {
        node.func.id for node in ast.walk(tree(file)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "print" not in called


def test_python_that_never_imports_torch_loads_only_the_hook() -> None:
    only_to_report_a_failure = {"json"}
    hook = imported(torch_profiler.AGENT / "sitecustomize.py")
    assert hook - only_to_report_a_failure == {"os", "sys", "perfdoctor_agent"}


def test_an_armed_python_loads_no_module_that_a_bare_one_does_not() -> None:
    def loaded(**environment: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        return set(done.stdout.split())

    armed = loaded(PYTHONPATH=str(torch_profiler.AGENT), PERFDOCTOR_AGENT="{}")
    assert armed - loaded() <= {"sitecustomize", "perfdoctor_agent", "perfdoctor_agent.imports", "__future__"}

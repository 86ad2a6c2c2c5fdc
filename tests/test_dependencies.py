"""Does every dependency earn its place: is each one that is required imported, and is all that is imported declared?"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from folders import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE = ROOT / "src" / "perfdoctor"
#: It runs in the user's process, with what that has.
#: Run by the Python of the program: they import what that has, and each other as top-level modules.
GUESTS = (SOURCE / "recording" / "agent", SOURCE / "recording" / "measuring")
#: Imported by programs that have the trainer in question.
OF_TRAINERS = SOURCE / "integrations"
#: Programs, which are never imported.
STARTED = {"py-spy"}
IMPORTED_AS = {"arro3-core": "arro3", "nvidia-ml-py": "pynvml", "mlflow-skinny": "mlflow"}

PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]


def names(requirements: list[str]) -> set[str]:
    """`nvidia-ml-py>=12` is nvidia-ml-py."""
    return {re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0] for requirement in requirements}


def module(distribution: str) -> str:
    return IMPORTED_AS.get(distribution, distribution.replace("-", "_"))


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


REQUIRED = names(PROJECT["dependencies"])
EXTRAS = {name for requirements in PROJECT["optional-dependencies"].values() for name in names(requirements)}


@cache
def imported_anywhere() -> set[str]:
    return set().union(
        *(imported(path) for path in SOURCE.rglob("*.py") if not {*GUESTS, OF_TRAINERS} & set(path.parents))
    )


@pytest.mark.parametrize("distribution", sorted(REQUIRED - STARTED))
def test_what_is_required_is_imported(distribution):
    assert module(distribution) in imported_anywhere()


@pytest.mark.parametrize("program", sorted(STARTED))
def test_or_it_is_a_program_that_is_started(program):
    assert program in REQUIRED
    assert any(f'"{program}"' in path.read_text("utf-8") for path in SOURCE.rglob("*.py"))


def test_old_commands_may_name_an_extra_that_is_empty_by_now():
    assert PROJECT["optional-dependencies"]["sampling"] == []


def test_what_is_imported_is_required_or_an_extra():
    declared = {module(distribution) for distribution in REQUIRED | EXTRAS}
    assert sorted(imported_anywhere() - declared - sys.stdlib_module_names - {"perfdoctor", "tomllib"}) == []


def test_what_takes_much_room_is_never_required():
    assert not REQUIRED & {"connectorx", "pandas", "pyarrow", "torch"}

"""Which treatments are there, and what is each? Read from their files without running them.

A treatment is a Python file. Its docstring's first line is its title; constants in capitals say the rest:

    RULES             ids of rules whose findings it is a fix for
    TOUCHES  RISK     what of the program it changes, and what may go wrong, for people
    SINCE             the torch that has it
    ADVICE            a pattern that is found in the code of advice to do the same
    PATCH             lines for the program that do the same; `{workers}`, `{threads}`, `{device}` are filled in
    GROUP             of treatments of one group a program takes one
    NEEDS             cpu, cuda, ranks, numa, bf16, compiler: without them it is not tried
    ENVIRONMENT       variables of its trials
    CHANGES_NUMERICS  results differ by more than the order of roundings
    OTHER_TRAINING, ITEMS   a step is another one, of so many times the items
    BY_ARGUMENTS      it is made of `given.construct` alone: the first run shows whether there is anything to change
    ANYWAY            it is tried without a finding, too
    STARTS_S          so many seconds longer may its start take

What it does is `apply(torch, given)`, in the program's process (recording/agent/perfdoctor_agent/treating.py).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.tools.torch_profiler import AGENT

_SHIPPED = AGENT / "perfdoctor_agent" / "treatments"


class Treatment(Struct, frozen=True):
    """One treatment; `name` is that of its file."""

    name: str
    file: str
    title: str
    patch: str = ""
    rules: tuple[str, ...] = ()
    advice: str = ""
    touches: str = ""
    risk: str = ""
    since: str = "1.0"
    group: str = ""
    needs: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    changes_numerics: bool = False
    other_training: bool = False
    items: float = 1.0
    by_arguments: bool = False
    anyway: bool = False
    starts_s: float = 0.0


def shipped() -> dict[str, Treatment]:
    """The treatments that come with perfdoctor, by name."""
    return read(_SHIPPED)


def read(folder: Path) -> dict[str, Treatment]:
    """The treatments in a folder, by name. Raises PerfdoctorError where one is not as it should be."""
    if not folder.is_dir():
        raise PerfdoctorError(f"there is no folder {folder}", do="Name a folder with one Python file a treatment.")
    return {file.stem: _treatment(file) for file in sorted(folder.glob("*.py")) if not file.stem.startswith("_")}


def _treatment(file: Path) -> Treatment:
    do = "perfdoctor's documentation has an example: docs/treat.md."
    try:
        tree = ast.parse(file.read_text("utf-8"), str(file))
        given = {name.lower(): value for name, value in _constants(tree).items()}
        title = (ast.get_docstring(tree) or "").partition("\n")[0].removesuffix(".")
        if not title or not any(isinstance(each, ast.FunctionDef) and each.name == "apply" for each in tree.body):
            raise PerfdoctorError(f"{file} lacks a docstring or a function apply(torch, given)", do=do)
        found = msgspec.convert(
            {**given, "name": file.stem, "file": str(file.absolute()), "title": title}, Treatment, strict=True
        )
    except (SyntaxError, ValueError, UnicodeDecodeError, OSError, msgspec.ValidationError) as error:
        raise PerfdoctorError(f"{file} is no treatment: {error}", do=do) from error
    unknown = sorted(given.keys() - set(Treatment.__struct_fields__))
    if unknown:
        raise PerfdoctorError(f"{file} has a constant that is unknown: {unknown[0].upper()}", do=do)
    return found


def _constants(tree: ast.Module) -> Mapping[str, Any]:
    """The constants in capitals; ValueError where one is no literal."""
    return {
        target.id: ast.literal_eval(each.value)
        for each in tree.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_")
    }

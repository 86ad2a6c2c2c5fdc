"""What trainers take stays: names, arguments and their defaults, without the trainers."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import perfdoctor.integrations
from perfdoctor.integrations.accelerate import record
from perfdoctor.integrations.window import WindowCallback

FOLDER = Path(perfdoctor.integrations.__file__).parent
PUBLIC = {
    "accelerate": {"record"},
    "ignite": {"PerfdoctorHandler", "PerfdoctorHandler.attach"},
    "lightning": {"PerfdoctorCallback"},
    "transformers": {"PerfdoctorCallback"},
}
OPTIONS = {
    "at_step": 20, "steps": 10, "output": None, "report": True, "log": (), "stacks": False, "modules": True, "time_limit_s": 120.0,
}  # fmt: skip


def names(module: str) -> set[str]:
    body = ast.parse((FOLDER / f"{module}.py").read_text("utf-8")).body
    made = [node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    methods = {
        f"{node.name}.{each.name}"
        for node in made
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef) and not each.name.startswith(("on_", "_"))
    }
    return {node.name for node in made} | methods


def test_the_names_are_those_that_the_page_shows() -> None:
    assert {module: names(module) for module in PUBLIC} == PUBLIC
    page = (FOLDER.parents[2] / "docs" / "in-your-code.md").read_text("utf-8")
    assert all(f"from perfdoctor.integrations.{module} import" in page for module in PUBLIC)


def test_all_take_the_same_options_by_name() -> None:
    for function in (WindowCallback, record):
        options = {
            name: each.default
            for name, each in inspect.signature(function).parameters.items()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        }
        assert options == OPTIONS

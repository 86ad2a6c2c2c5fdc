"""Does each public function say what its arguments are, what it returns and what it raises? pydoclint, of these alone.

`make lint` runs it. pydoclint's settings are in pyproject.toml; `public_api` says what is public.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfdoctor import api, rule_api, rule_testing

sys.path.insert(0, str(Path(__file__).parent))
from public_api import is_class, members

ROOT = Path(__file__).resolve().parents[1]
#: They import trainers, which need not be installed: read as text.
TRAINERS = ROOT / "src" / "perfdoctor" / "integrations"
#: DOC103 says the first two again, with the names of the arguments. The others want a `raise` of its own for each
#: error, but a function raises as well what those raise that it calls.
_LEFT_OUT = ("DOC101", "DOC102", "DOC502", "DOC503")
_ASIDE = re.compile(r"\. \(Or could be.*? \)")
_COMPLAINT = re.compile(r"\s+(\d+): (DOC\d+): (?:Function|Method|Class) `([\w.]+)`(?: method)?:? *(.*)")


def public() -> Mapping[Path, set[str]]:
    """The public functions by their file, each as `function` or `Class.method`; a class stands for its `__init__`."""
    found: dict[Path, set[str]] = {}
    for module in (api, rule_api, rule_testing):
        for name in module.__all__:
            for function in map(inspect.unwrap, _functions(getattr(module, name))):
                found.setdefault(Path(inspect.getfile(function)), set()).add(function.__qualname__)
    return {**found, **{path: set(_of_trainer(path)) for path in TRAINERS.glob("*.py")}}


def _functions(of: Any) -> Iterator[Any]:
    """Yield the function itself, or the public methods where it is a class."""
    if not is_class(of):
        found = [of]
    else:
        listed = [inspect.getattr_static(of, each.name, None) for each in members(of)]
        found = [getattr(each, "__func__", each) for each in listed]
    yield from (each for each in found if inspect.isfunction(each) and each.__module__.startswith("perfdoctor"))


def _of_trainer(path: Path) -> Iterator[str]:
    """Functions, classes with their arguments, and methods but those that a trainer calls (`on_train_begin`)."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield from (node.name, f"{node.name}.__init__")
        for each in getattr(node, "body", ()) if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.FunctionDef) and not each.name.startswith(("_", "on_")):
                yield f"{node.name}.{each.name}"


def complaints(of: Mapping[Path, set[str]]) -> Iterator[str]:
    """What pydoclint says of these functions, and which of them have no docstring, of which it says nothing."""
    for path, wanted in of.items():
        for name, line in _without_docstring(path, wanted):
            yield f"{_shown(path)}:{line}: {name}: no docstring"
    done = subprocess.run(
        [sys.executable, "-m", "pydoclint.main", "--config", str(ROOT / "pyproject.toml"), *map(str, of)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    path = Path()
    for line in (done.stdout + done.stderr).splitlines():
        if line.strip().endswith(".py"):
            path = Path(line.strip())
        elif (found := _COMPLAINT.match(line)) and found[3] in of.get(path, ()) and found[2] not in _LEFT_OUT:
            yield f"{_shown(path)}:{found[1]}: {found[3]}: {_ASIDE.sub('', found[4])}"


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def _without_docstring(path: Path, wanted: set[str]) -> Iterator[tuple[str, int]]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [("", each) for each in tree.body]
    functions += [(f"{cls.name}.", each) for cls in tree.body if isinstance(cls, ast.ClassDef) for each in cls.body]
    for front, each in functions:
        named = front + each.name if isinstance(each, ast.FunctionDef) else ""
        if named in wanted and not named.endswith("__init__") and ast.get_docstring(each) is None:
            yield named, each.lineno


if __name__ == "__main__":
    found = sorted(complaints(public()))
    print("\n".join(found))
    if found:
        sys.exit("Write Args, Returns and Raises as `perfdoctor.analyze` has them: plain sentences, with units.")

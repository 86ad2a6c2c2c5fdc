"""Does the code of a detector keep what its document says of it? Read from its source, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from perfdoctor.vocabulary.rulebook import Rule

#: What a rule may import of perfdoctor: all else may change with any version.
PUBLIC = ("perfdoctor", "perfdoctor.rule_api", "perfdoctor.api")
_ENDS = ("_low", "_likely", "_high")
#: Comparing with these judges nothing: is there any, one, or several?
_PLAIN = (0, 1, 2)


def problems(source: Path, rule: Rule) -> Iterator[str]:
    """What is wrong with the detector in `source`, one line each, with the line of the file where it has one."""
    try:
        tree = ast.parse(source.read_bytes())
    except SyntaxError as error:
        yield f"line {error.lineno}: {error.msg}"
        return
    except ValueError as error:  # it holds a null character
        yield f"line 1: {error}"
        return
    if not ast.get_docstring(tree):
        yield "line 1: there is no docstring: one line that says what is sought"
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "detect"]
    if not functions:
        yield "there is no function detect(run, at)"
    yield from _imports(tree)
    yield from _thresholds(tree, rule)
    for node in ast.walk(tree):
        for number in _judging(node):
            yield f"line {number.lineno}: {ast.unparse(number)} judges: make it a threshold, with its why"


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            named = [node.module or ""] if not node.level else []
        elif isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        else:
            continue
        for module in named:
            if module.partition(".")[0] == "perfdoctor" and module not in PUBLIC:
                yield f"line {node.lineno}: {module} may change with any version: import from perfdoctor.rule_api"


def _thresholds(tree: ast.Module, rule: Rule) -> Iterator[str]:
    """Thresholds that the document declares and the code reads nowhere (by name, or by its stem), and the reverse."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    in_formulas = set(rule.derivation.names) if rule.derivation else set()
    for name in rule.thresholds:
        stem = next((name.removesuffix(end) for end in _ENDS if name.endswith(end)), name)
        if name not in texts and stem not in texts:
            why = ", only a formula does" if name in in_formulas else ""
            yield f"the threshold {name} is declared, and detect reads it nowhere{why}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "at":
            key = node.slice
            if isinstance(key, ast.Constant) and key.value not in rule.thresholds:
                yield f"line {node.lineno}: at[{key.value!r}] is no threshold of the document"


def _judging(node: ast.AST) -> list[ast.Constant]:
    if not isinstance(node, ast.Compare):
        return []
    sides = [node.left, *node.comparators]
    return [
        side
        for side in sides
        if isinstance(side, ast.Constant)
        and isinstance(side.value, (int, float))
        and not isinstance(side.value, bool)
        and side.value not in _PLAIN
    ]

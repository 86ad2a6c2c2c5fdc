"""Which numbers without a name reach a saving? Followed backwards from each Finding through detectors and metrics.

From the expression that a detector hands over as saving (or as the affected time, or the bound): to what its names were
assigned, and into the functions, methods and properties that it asks, in the same module or imported from `detectors`
and `metrics`. A number there must be 0, 1, a factor between units, or a constant of the module with a comment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

#: Keywords of `Finding` and of the shapes' `finding` that say what a fix saves.
REACHES = {"saving", "saving_ns_per_step", "affected_ns", "bound_ns"}
#: Between seconds, ms, µs and ns; bytes and GB.
UNITS = {1_000, 1_000_000, 1_000_000_000}
#: Packages whose functions are followed: what lies below them assumes nothing of a fix.
FOLLOWED = ("perfdoctor.detectors", "perfdoctor.metrics")
#: Counts of FLOP and bytes by formula, which assume nothing either.
NOT_FOLLOWED = "perfdoctor.metrics.work"

Function = ast.FunctionDef


@dataclass
class Module:
    """One file: its functions (methods and properties too) by name, constants by name, and what it imports."""

    path: Path
    source: Path
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> dict[str, list[Function]]:
        found: dict[str, list[Function]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
        return found

    @cached_property
    def constants(self) -> dict[str, ast.Assign]:
        return {
            target.id: node
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    @cached_property
    def imported(self) -> dict[str, tuple[Path, str]]:
        """By local name: the file it comes from, and its name there."""
        found = {}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            if node.module.startswith(FOLLOWED) and not node.module.startswith(NOT_FOLLOWED):
                folder = self.source / node.module.replace(".", "/")
                for name in node.names:
                    file = folder / f"{name.name}.py" if folder.is_dir() else folder.with_suffix(".py")
                    found[name.asname or name.name] = file, name.name
        return found

    def has_reason(self, constant: str) -> bool:
        """Is there a comment above it, or behind it?"""
        node, lines = self.constants[constant], self.text.splitlines()
        return lines[node.lineno - 2].startswith("#") or "  # " in lines[node.end_lineno - 1]


@dataclass
class Search:
    """What was found on the way back, and where it has been."""

    source: Path
    modules: dict[Path, Module] = field(default_factory=dict)
    seen: set[tuple[Path, int]] = field(default_factory=set)
    offenders: set[str] = field(default_factory=set)

    def module(self, path: Path) -> Module:
        return self.modules.setdefault(path, Module(path, self.source))

    def from_detector(self, path: Path) -> None:
        module = self.module(path)
        for function in (each for group in module.functions.values() for each in group):
            for call in (node for node in own_nodes(function) if isinstance(node, ast.Call)):
                if name_of(call.func) in ("Finding", "finding"):
                    for keyword in call.keywords:
                        if keyword.arg in REACHES:
                            self.follow(keyword.value, module, (function,))

    def follow(self, expression: ast.AST, module: Module, around: tuple[Function, ...]) -> None:
        for node in without_places(expression):
            if isinstance(node, ast.Constant):
                self.judge(node, expression, module)
            elif isinstance(node, ast.Name):
                self.name(node.id, module, around)
            elif isinstance(node, ast.Attribute):
                self.attribute(node, module)

    def judge(self, node: ast.Constant, expression: ast.AST, module: Module) -> None:
        is_number = isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        if is_number and node.value not in {0, 1, *UNITS}:
            where = f"{module.path.relative_to(self.source)}:{node.lineno}"
            self.offenders.add(f"{where}: {node.value} in {ast.unparse(expression)[:80]}")

    def name(self, name: str, module: Module, around: tuple[Function, ...]) -> None:
        assigned = [value for function in around for value in assignments(function).get(name, ())]
        if assigned:
            for value in assigned:
                if self.is_new(value, module):
                    self.follow(value, module, around)
        elif name in module.functions:
            for function in module.functions[name]:
                self.function(function, module, around)
        elif name in module.constants:
            self.constant(name, module)
        elif name in module.imported:
            path, original = module.imported[name]
            there = self.module(path)
            if original in there.functions:
                for function in there.functions[original]:
                    self.function(function, there, ())
            elif original in there.constants:
                self.constant(original, there)

    def attribute(self, node: ast.Attribute, module: Module) -> None:
        """A method or property of this module, or of one that it imports: the first that has the name."""
        paths = [module.path, *(path for path, _ in module.imported.values())]
        if isinstance(node.value, ast.Name) and node.value.id in module.imported:  # a module: `roofline.least_ns`
            paths = [module.imported[node.value.id][0]]
        for path in dict.fromkeys(paths):
            there = self.module(path)
            if node.attr in there.functions:
                for function in there.functions[node.attr]:
                    self.function(function, there, ())
                return

    def function(self, function: Function, module: Module, around: tuple[Function, ...]) -> None:
        """All that what it returns is made of."""
        if not self.is_new(function, module):
            return
        for node in own_nodes(function):
            if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
                self.follow(node.value, module, (function, *around))

    def constant(self, name: str, module: Module) -> None:
        node = module.constants[name]
        has_number = any(isinstance(each, ast.Constant) and is_assumed(each.value) for each in ast.walk(node.value))
        if has_number and not module.has_reason(name):
            self.offenders.add(f"{module.path.relative_to(self.source)}:{node.lineno}: {name} has no comment")

    def is_new(self, node: ast.AST, module: Module) -> bool:
        key = module.path, id(node)
        is_new = key not in self.seen
        self.seen.add(key)
        return is_new


def is_assumed(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value not in {0, 1, *UNITS}


def name_of(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


@cache
def own_nodes(function: Function) -> list[ast.AST]:
    """Its nodes without those of functions inside it."""
    stack, found = list[ast.AST](function.body), []
    while stack:
        node = stack.pop()
        found.append(node)
        if isinstance(node, ast.Lambda):
            stack.append(node.body)
        elif not isinstance(node, ast.FunctionDef):
            stack.extend(ast.iter_child_nodes(node))
    return found


def without_places(expression: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression but those that say which elements are meant: indices, slices, axes, comparisons."""
    stack = [expression]
    while stack:
        node = stack.pop()
        yield node
        for name, child in ast.iter_fields(node):
            if isinstance(node, ast.Subscript) and name == "slice" and not isinstance(child, (ast.Compare, ast.Name)):
                continue
            if isinstance(node, ast.keyword) and node.arg in ("axis", "minlength"):
                continue
            children = child if isinstance(child, list) else [child]
            stack.extend(each for each in children if isinstance(each, ast.AST) and not is_judged(node, each))


def is_judged(node: ast.AST, child: ast.AST) -> bool:
    """A number that something is compared with scales nothing; those of detectors are thresholds in any case."""
    return isinstance(node, ast.Compare) and isinstance(child, ast.Constant)


@cache
def assignments(function: Function) -> dict[str, list[ast.expr]]:
    """What each name was set to in the function."""
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(function):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            targets, value = [node.target], node.iter
        else:
            continue
        for each in (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
            found.setdefault(each.id, []).append(value)
    return found


def unnamed_numbers(source: Path) -> list[str]:
    """Every number without a name that reaches a saving, as `file:line: number in expression`."""
    search = Search(source)
    for path in sorted((source / "perfdoctor" / "detectors").glob("*/*.py")):
        search.from_detector(path)
    return sorted(search.offenders)

"""In which module of the model does the program run? Each forward gets a mark in torch.profiler's trace.

A mark is `nn.Module: Attention GPT.layers.7.attn`: the class, and the path from the outermost module that was called,
of which the class stands for its name. It is torch's `_RecordFunctionFast`, made in C++: it takes 1 to 2 µs, a
`record_function` fifteen times as long. Modules are not kept alive by their names.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from perfdoctor_agent import private

_PREFIX = "nn.Module: "
_LONGEST_NAME = 300
#: A model has some thousand modules; of more than so many, those that are called first get their paths.
_MOST_NAMES = 50_000


class ModuleMarks:
    """Between `switch_on` and `switch_off`, `mark(name(module))` is a range around a forward."""

    def __init__(self, torch: Any) -> None:
        self.mark: Any = private.find(torch, private.MARK)
        self.is_on = False
        self._names: dict[int, tuple[Any, str]] = {}
        self._roots: dict[str, list[Any]] = {}

    def switch_on(self) -> bool:
        """False where this version of torch (before 2.2) has no marks that are fast enough."""
        self.is_on = self.mark is not None
        return self.is_on

    def switch_off(self) -> None:
        self.is_on = False
        self._names, self._roots = {}, {}

    def name(self, module: Any) -> str:
        known = self._names.get(id(module))
        # Another module may have got the number of one that is gone.
        if known is not None and known[0]() is module:
            return known[1]
        return self._unnamed(module)

    def know(self, root: Any) -> None:
        """Name an outermost module, and all inside it, once. A module with several paths keeps its first."""
        if self._is_named(root):
            return
        with contextlib.suppress(Exception):  # a module that cannot be named has no path
            left = [(self._top(root), root)]
            while left and len(self._names) < _MOST_NAMES:
                path, module = left.pop()
                if not self._is_named(module):
                    self._names[id(module)] = weakref.ref(module), _printable(f"{type(module).__name__} {path}")
                    children = module.__dict__.get("_modules") or {}  # a class may have changed `named_children`
                    inside = [(f"{path}.{name}", each) for name, each in children.items() if each is not None]
                    left += reversed(inside)

    def _top(self, root: Any) -> str:
        """The root's class, numbered where several of it live at once. One made anew in each step keeps its number."""
        top = type(root).__name__
        known = self._roots.setdefault(top, [])
        number = next((at for at, other in enumerate(known) if other() is None), len(known))
        known[number : number + 1] = [weakref.ref(root)]
        return f"{top}#{number + 1}" if number else top

    def _is_named(self, module: Any) -> bool:
        known = self._names.get(id(module))
        return known is not None and known[0]() is module

    def _unnamed(self, module: Any) -> str:
        """Name a module that was made since, or that no other holds, by its class alone."""
        name = _printable(type(module).__name__)
        with contextlib.suppress(Exception):
            if len(self._names) < _MOST_NAMES:
                self._names[id(module)] = weakref.ref(module), name
        return name


def _printable(name: str) -> str:
    """The mark of this name."""
    return (_PREFIX + name)[:_LONGEST_NAME].encode("utf-8", "replace").decode("utf-8")

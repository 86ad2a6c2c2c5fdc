"""In which module of the model does the program run? Each forward gets a mark in torch.profiler's trace.

A mark is `nn.Module: Attention GPT.layers.7.attn`: the class, and the path from the outermost module that was called,
of which the class stands for its name. It is torch's `_RecordFunctionFast`, made in C++: it takes 1 to 2 µs, a
`record_function` fifteen times as long. Modules are not kept alive by their names.
"""

from __future__ import annotations

import weakref
from typing import Any

_PREFIX = "nn.Module: "
_LONGEST_NAME = 300
#: A model has some thousand modules; of more than so many, those that are called first get their paths.
_MOST_NAMES = 50_000


class ModuleMarks:
    """Between `switch_on` and `switch_off`, `mark(name(module))` is a range around a forward."""

    def __init__(self, torch: Any) -> None:
        self.mark: Any = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)
        self.is_on = False
        self._names: dict[int, tuple[Any, str]] = {}
        self._roots: dict[str, int] = {}

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
        known = self._names.get(id(root))
        if known is not None and known[0]() is root:
            return
        try:
            top = type(root).__name__
            number = self._roots[top] = self._roots.get(top, 0) + 1
            top = top if number == 1 else f"{top}#{number}"
            for path, module in root.named_modules():
                if len(self._names) >= _MOST_NAMES:
                    break
                self._put(module, f"{top}.{path}" if path else top)
        except Exception:  # a module of the program's own that is unlike others: it and those behind it have no path
            pass

    def _put(self, module: Any, path: str) -> None:
        known = self._names.get(id(module))
        if known is None or known[0]() is not module:
            text = f"{_PREFIX}{type(module).__name__} {path}"
            self._names[id(module)] = weakref.ref(module), _printable(text)

    def _unnamed(self, module: Any) -> str:
        """Of one that was made since, or that no other holds: its class alone."""
        name = _printable(_PREFIX + type(module).__name__)
        try:
            if len(self._names) < _MOST_NAMES:
                self._names[id(module)] = weakref.ref(module), name
        except Exception:
            pass
        return name


def _printable(name: str) -> str:
    return name[:_LONGEST_NAME].encode("utf-8", "replace").decode("utf-8")

"""When does the program import torch? An import hook that waits for one module, then is gone."""

from __future__ import annotations

import importlib.abc
import os
import sys


class _Waiting(importlib.abc.MetaPathFinder):
    """First of the finders, until the module it waits for comes by."""

    def __init__(self, name, before, after):  # type: ignore[no-untyped-def]
        self.name, self.before, self.after = name, before, after

    def leave(self):  # type: ignore[no-untyped-def]
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname != self.name:
            return None
        # Asking is not importing: `importlib.util.find_spec("torch")` comes by as well, often long before.
        spec = self._found(fullname, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self.before()
            self._hook(spec.loader)
        return spec

    def _found(self, fullname, path, target):  # type: ignore[no-untyped-def]
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def _hook(self, loader):  # type: ignore[no-untyped-def]
        """Call `after(module)` once the module has run. On the loader itself, so that it keeps its type."""
        original = loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            self.leave()
            original(module)
            self.after(module)

        loader.exec_module = exec_module


def when_imported(name, after, before=lambda: None):  # type: ignore[no-untyped-def]
    """Call `after(module)` once `name` is imported: now, if it is already. Returns what ends the waiting."""
    if name in sys.modules:
        after(sys.modules[name])
        return lambda: None
    waiting = _Waiting(name, before, after)
    sys.meta_path.insert(0, waiting)
    return waiting.leave


def _quiet() -> None:
    """Kineto tells its stages on standard error unless told not to. Read when torch's library is loaded."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def watch() -> None:
    """Start the agent when torch is imported."""

    def start(torch):  # type: ignore[no-untyped-def]
        try:
            from perfdoctor_agent.agent import Agent  # noqa: PLC0415

            Agent.start(torch)
        except Exception:  # noqa: BLE001, S110
            pass

    when_imported("torch", start, before=_quiet)

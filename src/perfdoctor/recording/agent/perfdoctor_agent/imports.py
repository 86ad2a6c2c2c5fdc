"""When does the program import torch? An import hook that waits for one module, and then removes itself."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing takes milliseconds in each Python of the command
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Waiting:
    """The first finder in `sys.meta_path`, until the awaited module is imported."""

    def __init__(self, name: str, after: Callable[[Any], None]) -> None:
        self.name, self.after = name, after

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        # Finding is not importing: `importlib.util.find_spec("torch")` gets here too, often long before.
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._hook(spec.loader)
                return spec
        return None

    def _hook(self, loader: Any) -> None:
        """Call `after(module)` once the module was executed. Hooks the loader itself, so that it keeps its type."""
        original = loader.exec_module

        def exec_module(module: Any) -> None:
            self.leave()
            original(module)
            self.after(module)

        # Python shows no frames of the import system where an import fails, and none of this function then.
        exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")
        loader.exec_module = exec_module


def when_imported(name: str, after: Callable[[Any], None]) -> Callable[[], None]:
    """Call `after(module)` once `name` is imported: now, if it is already. Returns what ends the waiting."""
    if name in sys.modules:
        after(sys.modules[name])
        return lambda: None
    waiting = _Waiting(name, after)
    sys.meta_path.insert(0, waiting)
    return waiting.leave


def watch(failed: Callable[[Exception, str], None]) -> None:
    """Start the agent when torch is imported. `failed(error, version of torch)` is called where it does not start."""

    def start(torch: Any) -> None:
        try:
            from perfdoctor_agent.agent import Agent

            Agent.start(torch)
        except Exception as error:
            failed(error, str(getattr(torch, "__version__", "")))

    when_imported("torch", start)

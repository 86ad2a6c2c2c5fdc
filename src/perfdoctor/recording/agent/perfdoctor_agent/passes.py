"""When does the outermost module's forward run, and when has a backward pass ended?

`torch.nn.Module.__call__` is wrapped only as long as necessary: global module hooks would make torch.compile warn and
send every module through its slow path. A compiler must not see the wrapper: while it traces, the wrapper only calls
the original, and compiled modules keep the original. A program that runs backward passes without an optimizer trains by
hand.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import imports, private
from perfdoctor_agent.modules import ModuleMarks

_EVAL_FRAME = "torch._dynamo.eval_frame"
#: These modules of torch._dynamo remember the unpatched `__call__`, and take a short cut where they find it.
_REMEMBERING = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")


#: A batch that is taken in parts (gradient accumulation) rarely has more; of a longer forward a range is below a tenth.
_OFTEN, _BRIEF_NS = 8, 300_000


class _Depth(threading.local):
    inside = False


class ForwardWatch:
    """Calls `around(call, module, *args, **kwargs)` for each outermost forward, between `install` and `remove`.

    While `marks` are on, each forward inside has a mark around it, too.
    """

    def __init__(self, torch: Any, around: Callable[..., Any], marks: ModuleMarks) -> None:
        self.marks = marks
        self.module = torch.nn.Module
        self.original = private.find(torch, private.CALL)
        self.wrapper = self._wrapper(torch, around)
        self.is_on = False
        self._stop_waiting: Callable[[], None] = lambda: None
        self._restore_compiled: Callable[[], None] = lambda: None

    def _wrapper(self, torch: Any, around: Callable[..., Any]) -> Any:
        depth, original, is_compiling = _Depth(), self.original, torch.compiler.is_compiling
        marks, mark = self.marks, self.marks.mark

        # As little as possible: every module of the model gets here.
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(self, *args, **kwargs)
            if depth.inside:
                if not marks.is_on:
                    return original(self, *args, **kwargs)
                with mark(marks.name(self)):
                    return original(self, *args, **kwargs)
            depth.inside = True
            try:
                if not marks.is_on:
                    return around(original, self, *args, **kwargs)
                marks.know(self)
                return around(marked, self, *args, **kwargs)
            finally:
                depth.inside = False

        def marked(module: Any, *args: Any, **kwargs: Any) -> Any:
            with mark(marks.name(module)):
                return original(module, *args, **kwargs)

        return call

    def install(self) -> None:
        if not self.is_on and self.original is not None:
            self.is_on = True
            self._swap(self.original, self.wrapper)
            self._stop_waiting = imports.when_imported(_EVAL_FRAME, self._spare_compiled)

    def remove(self) -> None:
        if self.is_on:
            self.is_on = False
            self._stop_waiting()
            self._restore_compiled()
            self._swap(self.wrapper, self.original)

    def _swap(self, old: Any, new: Any) -> None:
        if self.module.__dict__.get("__call__") is old:
            self.module.__call__ = new
        for name in _REMEMBERING:
            module = sys.modules.get(name)
            if getattr(module, "unpatched_nn_module_call", None) is old:
                module.unpatched_nn_module_call = new  # type: ignore[union-attr]

    def _spare_compiled(self, eval_frame: Any) -> None:
        """A compiled module stores the bound `__call__` of the module that it compiles: let it find the original."""
        compiled = getattr(eval_frame, "OptimizedModule", None)
        initialize = getattr(compiled, "__dict__", {}).get("_initialize")
        if initialize is None:
            return

        @functools.wraps(initialize)
        def unwatched(module: Any) -> Any:
            was_on = self.is_on
            if was_on:
                self._swap(self.wrapper, self.original)
            try:
                return initialize(module)
            finally:
                if was_on:
                    self._swap(self.original, self.wrapper)

        self._restore_compiled = private.replace(compiled, "_initialize", unwatched)


class ShortForwards:
    """Which modules run so often in a step, and so briefly, that a range around each forward would be much of it?

    A cell that a loop calls for each item of a sequence: a range takes 15 to 30 µs, and a mark names it all the same.
    They are those that did in the step of warm-up.
    """

    def __init__(self) -> None:
        self._took: dict[int, tuple[int, int]] = {}

    def timed(self, call: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        begun_ns = time.perf_counter_ns()
        try:
            return call(module, *args, **kwargs)
        finally:
            count, ns = self._took.get(id(module), (0, 0))
            self._took[id(module)] = count + 1, ns + time.perf_counter_ns() - begun_ns

    def __contains__(self, module: Any) -> bool:
        count, ns = self._took.get(id(module), (0, 0))
        return count > _OFTEN and ns < count * _BRIEF_NS


class BackwardWatch:
    """Calls `ended()` after each outermost backward pass, between `install` and `remove`.

    `Tensor.backward`, `autograd.backward` and `autograd.grad` all call the function that is wrapped here. A pass inside
    a pass (activation checkpointing, on one of autograd's threads) belongs to the outer one.
    """

    def __init__(self, torch: Any, ended: Callable[[], None]) -> None:
        self.torch, self.ended = torch, ended
        self.inside = False
        self._restore: Callable[[], None] = lambda: None

    def install(self) -> None:
        original = private.find(self.torch, private.RUN_BACKWARD)
        if original is None:
            return

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return original(*args, **kwargs)
            self.inside = True
            try:
                result = original(*args, **kwargs)
            finally:
                self.inside = False
            self.ended()
            return result

        self._restore = private.replace(self.torch.autograd, private.RUN_BACKWARD.rpartition(".")[2], call)

    def remove(self) -> None:
        self._restore()

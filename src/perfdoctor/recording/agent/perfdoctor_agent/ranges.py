"""Which parts of the program become ranges while steps are recorded, and how are the hooks removed again?

PyTorch gives its own ranges (`enumerate(DataLoader)…`, `Optimizer.step#…`, `Optimizer.zero_grad#…`,
`DistributedDataParallel.forward`) and the program's `record_function` ranges to torch.profiler only; these hooks give
them to Nsight Systems too. New ranges are backward, checkpoint writes and garbage collections; the agent adds forward
with `around`. Hooks replace attributes of torch's modules, which are restored afterwards.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private

#: Collections of the youngest generation are frequent and take microseconds: they get no range.
_YOUNGEST = 0
_LONGEST_NAME = 200


class RangeHooks:
    """Ranges in the recorded window. `range_of(name)` begins one and returns the function that ends it."""

    def __init__(self, torch: Any, nvtx: Any | None, *, to_torch: bool) -> None:
        self.torch, self.nvtx, self.to_torch = torch, nvtx, to_torch
        self.count = 0
        self._undo: list[Callable[[], None]] = []
        self._collections: list[Callable[[], None]] = []
        self._open: set[int] = set()
        self._step: Callable[[], None] = _nothing
        self._record = torch.autograd.profiler.record_function

    # --- on and off ---

    def install(self) -> None:
        if self.nvtx is not None:
            self._hand_ranges_to_nvtx()
        self._wrap(self.torch.autograd, private.RUN_BACKWARD.rpartition(".")[2], "backward")
        self._wrap(self.torch, "save", "torch.save")
        # A safe checkpoint waits longest for these, which no profiler shows: writing to disk, replacing the old file.
        for name in ("fsync", "replace", "rename"):
            self._wrap(os, name, "os." + name)
        checkpoint = sys.modules.get("torch.distributed.checkpoint")
        for name in ("save", "async_save"):
            self._wrap(checkpoint, name, "torch.distributed.checkpoint." + name)
        gc.callbacks.append(self._collecting)
        self._undo.append(lambda: gc.callbacks.remove(self._collecting))

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()
        for begun in list(self._open):  # the optimizer's range, which ends after the hook that closes the window
            self._end(begun)

    def _wrap(self, owner: Any, name: str, shown: str) -> None:
        original = owner.__dict__.get(name) if owner is not None else None
        if original is None:
            return

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return self.around(shown, original, *args, **kwargs)

        self._undo.append(private.replace(owner, name, wrapper))

    # --- ranges ---

    def around(self, shown: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        end = self.range_of(shown)
        try:
            return call(*args, **kwargs)
        finally:
            end()

    def range_of(self, name: str) -> Callable[[], None]:
        if self.to_torch:
            record = self._record(name)
            record.__enter__()
            return lambda: record.__exit__(None, None, None)
        return self._nvtx_range(name)

    def _nvtx_range(self, name: str) -> Callable[[], None]:
        if self.nvtx is None:
            return _nothing
        self.count += 1
        begun = self.nvtx.start_range(name[:_LONGEST_NAME].encode("utf-8", "replace").replace(b"\0", b" "))
        self._open.add(begun)
        return functools.partial(self._end, begun)

    def _end(self, begun: int) -> None:
        if begun in self._open and self.nvtx is not None:
            self._open.discard(begun)
            self.nvtx.end_range(begun)

    def step_begins(self, number: int) -> None:
        """Mark a step for nsys; torch.profiler marks its steps itself."""
        self._step()
        self._step = self._nvtx_range(f"ProfilerStep#{number}")

    def steps_end(self) -> None:
        self._step()
        self._step = _nothing

    def _hand_ranges_to_nvtx(self) -> None:
        enter, leave, hooks = self._record.__enter__, self._record.__exit__, self

        @functools.wraps(enter)
        def both_enter(self: Any) -> Any:
            self.perfdoctor_range = hooks._nvtx_range(self.name)
            return enter(self)

        @functools.wraps(leave)
        def both_exit(self: Any, *args: Any) -> Any:
            self.__dict__.pop("perfdoctor_range", _nothing)()
            return leave(self, *args)

        for name, new in (("__enter__", both_enter), ("__exit__", both_exit)):
            self._undo.append(private.replace(self._record, name, new))

    def _collecting(self, phase: str, info: Any) -> None:
        if info.get("generation", _YOUNGEST) == _YOUNGEST:
            return
        if phase == "start":
            self._collections.append(self.range_of("gc_gen{}".format(info["generation"])))
        elif self._collections:
            self._collections.pop()()


def _nothing() -> None:
    pass

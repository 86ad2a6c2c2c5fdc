"""How does torch.profiler record some steps of an unchanged program?

After one step of warm-up it records steps until it is stopped, and then writes the trace.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private
from perfdoctor_agent.foreign import Foreign

_NO_LINES = 99
_IF_LOADED = 4  # RTLD_NOLOAD


class Recorder:
    """One window of torch.profiler. `target` gets the trace, plain JSON: compressing would delay the program."""

    def __init__(self, torch: Any, foreign: Foreign, *, cuda: bool, stacks: bool, target: str) -> None:
        self.torch, self.foreign, self.target = torch, foreign, target
        self.trace = ""
        self.error = ""
        self.before_export: Callable[[], None] = lambda: None
        profiler = torch.profiler
        self._warning = (getattr(profiler, "profiler", None), torch.autograd.profiler)
        activities = [profiler.ProfilerActivity.CPU] + ([profiler.ProfilerActivity.CUDA] if cuda else [])
        options: dict[str, Any] = {"record_shapes": True, "with_stack": stacks}
        config = _experimental(torch, cuda=cuda, stacks=stacks)
        if config is not None:
            options["experimental_config"] = config
        self.profile = profiler.profile(
            activities=activities,
            schedule=lambda step: profiler.ProfilerAction.RECORD if step else profiler.ProfilerAction.WARMUP,
            on_trace_ready=self._export,
            **options,
        )

    def warm_up(self) -> None:
        self._quietly(self.profile.start)

    def step(self) -> None:
        self._quietly(self.profile.step)

    def stop(self) -> None:
        """End the recording, write the trace, and free what was recorded: 1 kB an op, until the program's end."""
        self._quietly(self.profile.stop)
        if hasattr(self.profile.profiler, "kineto_results"):
            self.profile.profiler.kineto_results = None

    def discard(self) -> None:
        """End the recording, and write nothing."""
        self.profile.on_trace_ready = None
        self.stop()

    def _quietly(self, call: Callable[[], Any]) -> None:
        """Call without the profiler's warnings, and so that `Foreign` does not take our profiler for the program's.

        Not `warnings.catch_warnings`: Python would forget which of the program's warnings it has shown.
        """
        self.foreign.ours = True
        spoken = _silence_kineto(self.torch)
        warn = [(module, module.warn) for module in self._warning if hasattr(module, "warn")]
        try:
            for module, _ in warn:
                module.warn = lambda *_args, **_kwargs: None
            call()
        finally:
            for module, original in warn:
                module.warn = original
            spoken()
            self.foreign.ours = False

    def _export(self, profile: Any) -> None:
        self.before_export()
        draft = self.target + ".part"
        try:
            open(draft, "w").close()  # fails if the folder is missing; Kineto would print to standard error
            profile.export_chrome_trace(draft)
            os.replace(draft, self.target)
            self.trace = os.path.basename(self.target)
        except Exception as error:  # a full disk ends the recording, not the program
            self.error = f"{type(error).__name__}: {error}"


def _silence_kineto(torch: Any) -> Callable[[], None]:
    """Keep Kineto's lines about our recording off the program's output; returns what restores its level.

    The level is a variable of torch's library. The environment's KINETO_LOG_LEVEL would silence the program's own
    profiler and its children too.
    """
    level = _kineto_level(os.path.dirname(torch.__file__))
    if level is None:
        return lambda: None
    before, level.value = level.value, _NO_LINES

    def restore() -> None:
        if level.value == _NO_LINES:  # else the first profiler of the process has just set its default
            level.value = before

    return restore


@functools.lru_cache(maxsize=1)  # it is asked for in each recorded step
def _kineto_level(torch_folder: str) -> Any | None:
    try:
        library = os.path.join(torch_folder, "lib", "libtorch_cpu.so")
        return ctypes.c_int.in_dll(ctypes.CDLL(library, mode=_IF_LOADED), private.KINETO_LEVEL)
    except (OSError, ValueError, TypeError):  # built without Kineto, or into another library
        return None


def _experimental(torch: Any, *, cuda: bool, stacks: bool) -> Any | None:
    """Options that this version of torch has: rows for syncs, and no second copy of all events in Python."""
    config = private.find(torch, private.OPTIONS)
    if config is None:
        return None
    known = config.__init__.__doc__ or ""
    wanted = {"enable_cuda_sync_events": cuda, "trace_only": not stacks}
    options = {name: True for name, is_wanted in wanted.items() if is_wanted and name + ":" in known}
    return config(**options) if options else None

"""How does torch.profiler record some steps of an unchanged program?

With its own schedule: one step of warm-up, then the recorded ones, then the trace is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import kineto, private
from perfdoctor_agent.foreign import Foreign


class Recorder:
    """One window of torch.profiler. `target` gets the trace, plain JSON: compressing would delay the program."""

    def __init__(self, torch: Any, foreign: Foreign, *, cuda: bool, stacks: bool, steps: int, target: str) -> None:
        self.torch, self.foreign, self.steps, self.target = torch, foreign, steps, target
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
            schedule=profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
            on_trace_ready=self._export,
            **options,
        )

    def warm_up(self) -> None:
        self._quietly(self.profile.start)

    def step(self) -> None:
        self._quietly(self.profile.step)

    def stop(self) -> None:
        self._quietly(self.profile.stop)

    def _quietly(self, call: Callable[[], Any]) -> None:
        """Call without the profiler's warnings, and so that `Foreign` does not take our profiler for the program's.

        Not `warnings.catch_warnings`: Python would forget which of the program's warnings it has shown.
        """
        self.foreign.ours = True
        spoken = kineto.silence(self.torch)
        warn = [(module, module.warn) for module in self._warning if hasattr(module, "warn")]
        try:
            for module, _ in warn:
                module.warn = _ignore_warning
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


def _ignore_warning(*_args: Any, **_kwargs: Any) -> None:
    pass


def _experimental(torch: Any, *, cuda: bool, stacks: bool) -> Any | None:
    """Options that this version of torch has: rows for syncs, and no second copy of all events in Python."""
    config = private.find(torch, private.OPTIONS)
    if config is None:
        return None
    known = config.__init__.__doc__ or ""
    wanted = {"enable_cuda_sync_events": cuda, "trace_only": not stacks}
    options = {name: True for name, is_wanted in wanted.items() if is_wanted and name + ":" in known}
    return config(**options) if options else None

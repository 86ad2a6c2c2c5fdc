"""How does torch.profiler record some steps of an unchanged program?

With its own schedule: one step of warm-up, then the recorded ones, then the trace is written. `Foreign` notices if the
program runs a profiler itself: only one can run, and the program's has precedence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

#: A window that the program's own profiler cuts short is kept if it holds this many whole steps.
FEWEST_STEPS = 3


class Foreign:
    """Does the program itself use a profiler of torch? Detected at the three functions that all of them call."""

    def __init__(self, torch: Any, make_room: Callable[[], None]) -> None:
        self.profiler = torch.autograd.profiler
        self.ours = False
        self.is_active = False
        self.make_room = make_room
        self._originals: dict[str, Any] = {}

    def watch(self) -> None:
        for name, is_active in (("_prepare_profiler", True), ("_enable_profiler", True), ("_disable_profiler", False)):
            original = self.profiler.__dict__.get(name)
            if original is not None:
                self._originals[name] = original
                setattr(self.profiler, name, self._noticing(original, is_active))

    def leave(self) -> None:
        for name, original in self._originals.items():
            setattr(self.profiler, name, original)
        self._originals.clear()

    def _noticing(self, original: Any, is_active: bool) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.ours:
                if is_active and not self.is_active:
                    self.make_room()
                self.is_active = is_active
            return original(*args, **kwargs)

        return call


class Recorder:
    """One window of torch.profiler. `target` gets the trace, plain JSON: compressing would delay the program."""

    def __init__(self, torch: Any, foreign: Foreign, *, cuda: bool, stacks: bool, steps: int, target: str) -> None:
        self.torch, self.foreign, self.steps, self.target = torch, foreign, steps, target
        self.trace = ""
        self.error = ""
        self.before_export: Callable[[], None] = lambda: None
        profiler = torch.profiler
        self._warning = (profiler.profiler, torch.autograd.profiler)
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
        warn = [(module, module.__dict__["warn"]) for module in self._warning if "warn" in module.__dict__]
        try:
            for module, _ in warn:
                module.warn = _ignore_warning
            call()
        finally:
            for module, original in warn:
                module.warn = original
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
    try:
        config = torch._C._profiler._ExperimentalConfig
        known = config.__init__.__doc__ or ""
    except AttributeError:
        return None
    wanted = {"enable_cuda_sync_events": cuda, "trace_only": not stacks}
    options = {name: True for name, is_wanted in wanted.items() if is_wanted and name + ":" in known}
    return config(**options) if options else None

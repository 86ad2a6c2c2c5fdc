"""Does the program itself use a profiler of torch? Only one can run, and the program's has precedence."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private


class Foreign:
    """Notices the program's own profilers at the three functions that all of them call, and the traces that they write.

    `make_room()` is called before one starts, `wrote(path)` after it has written a trace. While `is_alone`, a profiler
    of the program that goes on counting its steps opens no ranges for them: they would be in our recording.
    """

    def __init__(self, torch: Any, make_room: Callable[[], None], wrote: Callable[[str], None]) -> None:
        self.torch, self.profiler = torch, torch.autograd.profiler
        self.ours = False
        self.is_active = False
        self.is_alone = False
        self.is_writing = False
        self.make_room, self.wrote = make_room, wrote
        self._undo: list[Callable[[], None]] = []

    def watch(self) -> None:
        for path, is_active in ((private.PREPARE, True), (private.ENABLE, True), (private.DISABLE, False)):
            name = path.rpartition(".")[2]
            self._replace(self.profiler, name, functools.partial(self._noticing, is_active=is_active))
        self._replace(self.torch.profiler.profile, "step", self._without_ranges)
        self.watch_exports()

    def watch_exports(self) -> None:
        for owner in (private.find(self.torch, private.KINETO_PROFILE), self.profiler.profile):
            self._replace(owner, "export_chrome_trace", self._noting_file)

    def leave(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, made_of: Callable[[Any], Any]) -> None:
        original = getattr(owner, "__dict__", {}).get(name)
        if original is not None:
            self._undo.append(private.replace(owner, name, made_of(original)))

    def _noticing(self, original: Any, *, is_active: bool) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.ours:
                if is_active and not self.is_active:
                    self.make_room()
                self.is_active = is_active
            return original(*args, **kwargs)

        return call

    def _without_ranges(self, original: Any) -> Any:
        @functools.wraps(original)
        def step(profile: Any, *args: Any, **kwargs: Any) -> Any:
            marks = getattr(profile, "record_steps", False)
            if self.ours or not (self.is_alone and marks):
                return original(profile, *args, **kwargs)
            profile.record_steps = False
            try:
                return original(profile, *args, **kwargs)
            finally:
                profile.record_steps = marks

        return step

    def _noting_file(self, original: Any) -> Any:
        @functools.wraps(original)
        def export(profile: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            is_outermost, self.is_writing = not self.is_writing, True
            try:
                result = original(profile, path, *args, **kwargs)
            finally:
                self.is_writing = not is_outermost
            if is_outermost and not self.ours and isinstance(path, (str, os.PathLike)):
                self.wrote(os.path.abspath(os.fspath(path)))
            return result

        return export

"""What does the program do between its training steps, from its first step to its last?

Three things are kept, in memory and at the end in one file: when each step ended, by which line of the program, and a
sample of the training thread's stack some times a second. Whoever reads them finds the pauses between steps (an
evaluation, a checkpoint, a rollout), how often they come and which line they are.

A thread of this process takes the samples: pauses are rare and may be short, and starting py-spy takes longer than
many of them. It holds the interpreter for some 20 µs a sample. Where more samples are taken than are kept, every other
one is dropped and they are taken half as often: what is kept is even over the run, and as small after ten hours as
after five minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import weakref
from array import array
from collections.abc import Callable
from typing import Any

from perfdoctor_agent import private
from perfdoctor_agent.pace import DEVICE, HOST, between_ns, event_here

#: 100 samples a second of the first ten seconds, then 50: a tenth of three seconds is known to ± 2 points. A sample
#: takes some 20 µs, and as much again to wake up.
_FIRST_PAUSE_S = 0.010
_FIRST_SAMPLES, _MOST_SAMPLES = 1024, 8192
#: More steps are not kept: what comes every k steps was seen often enough by then.
_MOST_STEPS = 100_000
#: Steps in the process's report, for comparisons of runs.
_MOST_REPORTED = 20_000
#: A stack has at most so many frames. Of each stretch of frames inside torch and Python the outermost say what the
#: program called.
_DEEPEST, _OF_LIBRARY = 150, 3
#: Where torch compiles, far below what calls it: only then is one of their functions on the stack.
_COMPILERS = ("/torch/_dynamo/convert_frame.py", "/torch/_inductor/compile_fx.py")
_MOST_STACKS = 20_000
#: Steps after pauses of ever more times this length write the file, as a program may be killed.
_FIRST_WRITE_S = 20.0
#: A sample is over by then; one that waits for the interpreter all that time is left.
_ENDING_S = 1.0
_GOLDEN = 0.618033988749895


class WholeRun:
    """The steps of one process, and `samples` of its stack. `begin` at its first step, `write` at its end.

    `events`: steps are timed by the GPU's clock where one is at work: a host that launches ahead of its GPU ends them
    as fast as it launches.
    """

    def __init__(self, torch: Any, folder: str, name: str, *, samples: bool, events: bool = False) -> None:
        self.torch, self.path, self.has_samples = torch, os.path.join(folder, name), samples
        self.has_events = events
        self.is_on = False
        self.parameter_bytes = 0
        self._optimizers: set[int] = set()
        self.ends: dict[Any, array[int]] = {}
        self.sites: dict[Any, array[int]] = {}
        self.events: dict[Any, list[Any]] = {}
        self.known_sites: dict[tuple[Any, int, Any], int] = {}  # code and line that ask for a step, code that calls it
        self.windows: list[list[int]] = []  # steps that recording made longer: the first, and the one behind the last
        self.samples = [array("q"), array("l"), array("b"), array("q")]  # time, stack, evaluating, bytes written
        self.frames: dict[tuple[int, int], int] = {}
        self.codes: dict[int, Any] = {}  # kept alive, as their ids are the keys
        self.stacks: dict[tuple[int, ...], int] = {}
        self.iterators: list[list[int]] = []
        self._loaders: Any = weakref.WeakKeyDictionary()
        self._evaluated: list[Any] = []
        self._undo: list[Callable[[], None]] = []
        self._thread = 0
        self._pause_s, self._turn, self._most = _FIRST_PAUSE_S, 0.0, _FIRST_SAMPLES
        self._next_write_s = _FIRST_WRITE_S
        self._is_recorded = self._is_over = False
        self._stop = threading.Event()
        self._io = -1

    # --- steps ---

    def begin(self) -> None:
        """Begin with the first step, on the thread that trains."""
        self.is_on = True
        self.begun_ns, self.begun_unix_ns = time.monotonic_ns(), time.time_ns()
        self._thread = threading.get_ident()
        if not self.has_samples:
            return
        with contextlib.suppress(OSError):
            self._io = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        self._undo.append(private.replace(self.torch.nn.Module, "eval", self._eval()))
        self._undo.append(private.replace(self.torch.utils.data.DataLoader, "__iter__", self._iter()))
        self._sampler = threading.Thread(target=self._sample_on, name="perfdoctor-samples", daemon=True)
        self._sampler.start()

    def know(self, optimizer: Any) -> None:
        """Note how many bytes the parameters of an optimizer have: a file as large is a checkpoint."""
        if id(optimizer) in self._optimizers:
            return
        self._optimizers.add(id(optimizer))
        with contextlib.suppress(Exception):  # a class of the program's own
            sizes = [p.numel() * p.element_size() for group in optimizer.param_groups for p in group["params"]]
            self.parameter_bytes += sum(sizes)

    def step_ended(self, kind: Any, now_ns: int) -> None:
        """Note the end of what may be a step."""
        if not self.is_on:
            self.begin()
        ends = self.ends.get(kind)
        if ends is None:
            ends, self.sites[kind] = self.ends.setdefault(kind, array("q")), array("l")
        if len(ends) < _MOST_STEPS:
            ends.append(now_ns)
            self.sites[kind].append(self._site())
            if self.has_events and len(ends) <= _MOST_REPORTED:
                self.events.setdefault(kind, []).append(event_here(self.torch))
        if self._evaluated:  # a model in evaluation mode that is trained all the same is a part that is frozen
            self._evaluated.clear()

    def choose(self, kind: Any) -> None:
        """Keep the ends of this kind alone."""
        for each in [other for other in self.ends if other != kind]:
            del self.ends[each], self.sites[each]
            self.events.pop(each, None)

    def begin_anew(self) -> None:
        """Drop the steps so far: they were none of the training."""
        for each in (self.ends, self.sites, self.events, self.windows):
            each.clear()
        self._is_recorded = False

    def window_begins(self) -> None:
        self.windows.append([self.steps - 1, -1])
        self._is_recorded = True

    def window_ends(self) -> None:
        """The step that ends next holds the writing of the trace."""
        if self._is_recorded:
            self.windows[-1][1] = self.steps
            self._is_recorded = False

    @property
    def steps(self) -> int:
        """How many have ended."""
        return max((len(ends) for ends in self.ends.values()), default=0)

    def _site(self) -> int:
        """The number of the program's line that asked for the step."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_globals.get("__name__") or ""
            if not name.startswith(("torch.", "perfdoctor_agent.")):
                caller = frame.f_back.f_code if frame.f_back is not None else frame.f_code
                return self.known_sites.setdefault((frame.f_code, frame.f_lineno, caller), len(self.known_sites))
            frame = frame.f_back  # type: ignore[assignment]
        return -1

    # --- what the program says itself ---

    def _eval(self) -> Any:
        original, evaluated, thread = self.torch.nn.Module.eval, self._evaluated, self._thread

        def eval(module: Any) -> Any:  # noqa: A001 in the place of torch's
            if threading.get_ident() == thread and len(evaluated) < 16:
                with contextlib.suppress(TypeError):
                    evaluated.append(weakref.ref(module))
            return original(module)

        return _like(eval, original)

    def _iter(self) -> Any:
        original, loaders, known = self.torch.utils.data.DataLoader.__iter__, self._loaders, self.iterators

        def __iter__(loader: Any) -> Any:  # noqa: N807 in the place of torch's
            begin = time.monotonic_ns()
            made = original(loader)
            with contextlib.suppress(TypeError):
                if len(known) < _MOST_SAMPLES:
                    known.append([begin, time.monotonic_ns(), loaders.setdefault(loader, len(loaders))])
            return made

        return _like(__iter__, original)

    def _is_evaluating(self) -> bool:
        modules = [each() for each in list(self._evaluated)]
        return any(module is not None and not module.training for module in modules)

    # --- samples ---

    def _sample_on(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter ends, or is out of memory: the program goes on
            while not self._stop.wait(self._pause()):
                if not self._is_recorded:
                    self._sample()
                age_s = (time.monotonic_ns() - self.begun_ns) / 1e9
                if age_s > self._next_write_s:
                    self._next_write_s *= 4
                    self.write()

    def _pause(self) -> float:
        """Between half and one and a half of the mean: a fixed one could keep step with the program's."""
        self._turn = (self._turn + _GOLDEN) % 1.0
        return self._pause_s * (0.5 + self._turn)

    def _sample(self) -> None:
        frame = sys._current_frames().get(self._thread)
        now_ns = time.monotonic_ns()
        stack = self._stack(frame) if frame is not None else ()
        del frame  # it keeps the program's variables alive
        if not stack or len(self.stacks) >= _MOST_STACKS:
            return
        values = now_ns, self.stacks.setdefault(stack, len(self.stacks)), self._is_evaluating(), self._written()
        for column, value in zip(self.samples, values):
            column.append(value)
        if len(self.samples[0]) >= self._most:
            self.samples = [column[::2] for column in self.samples]
            self._pause_s, self._most = 2 * self._pause_s, _MOST_SAMPLES

    def _stack(self, frame: Any) -> tuple[int, ...]:
        """Numbers of the frames, innermost first."""
        found: list[int] = []
        # Frames of the stretch inside torch or Python, of which the outermost are kept, and that which compiles.
        inside: list[int] = []
        compiles: list[int] = []
        while frame is not None and len(found) < _DEEPEST:
            code = frame.f_code
            number = self.frames.setdefault((id(code), frame.f_lineno), len(self.frames))
            self.codes.setdefault(id(code), code)
            if _is_inner(code.co_filename):
                inside.append(number)
                if code.co_filename.endswith(_COMPILERS):
                    compiles = [number]
            else:
                found += compiles + inside[-_OF_LIBRARY:]
                inside, compiles = [], []
                found.append(number)
            frame = frame.f_back
        return tuple(found + compiles + inside[-_OF_LIBRARY:])

    def _written(self) -> int:
        """Bytes that this process has written so far; 0 where the kernel does not count them."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            if self._io >= 0:
                return int(os.pread(self._io, 200, 0).partition(b"wchar:")[2].split(None, 1)[0])
        return 0

    # --- the end ---

    def timed(self, *, waits: bool = True) -> dict[str, Any]:
        """The lengths of the first steps, for the process's report; empty without two of them.

        `waits`: for the GPU to end its last step. One that hangs never does.
        """
        ends = list(self._ends()[:_MOST_REPORTED])
        if len(ends) < 3:
            return {}
        first, behind = self.windows[0] if self.windows else (0, 0)
        on_device = self._by_events(waits=waits)
        return {
            "start_unix_ns": self.begun_unix_ns + ends[0] - self.begun_ns, "clock": DEVICE if on_device else HOST,
            "lengths_ns": on_device or [b - a for a, b in zip(ends, ends[1:])],
            "recorded": [first, behind if behind >= 0 else len(ends) - 1],
        }  # fmt: skip

    def _by_events(self, *, waits: bool) -> list[int]:
        """The steps by the GPU's clock; empty where it did not see the end of each, or two GPUs did."""
        events = list(max(self.events.values(), key=len, default=[]))
        if None in events:
            return []
        try:
            if events and waits:
                events[-1].synchronize()
            while events and not events[-1].query():
                events.pop()
            return between_ns(events)
        except Exception:  # an error of the GPU's, which ends the program
            return []

    def _ends(self) -> array[int]:
        return max(self.ends.values(), key=len, default=array("q"))

    def end(self) -> None:
        """Take no more samples, and remove what was put into torch; the file is written."""
        if not self.is_on or self._is_over:
            return
        self._is_over = True
        self._stop.set()
        while self._undo:
            self._undo.pop()()
        if self.has_samples:
            self._sampler.join(_ENDING_S)
        self.write()

    def drop(self) -> None:
        """Forget everything in a fork, which has no thread that takes samples."""
        self._is_over = True
        while self._undo:
            self._undo.pop()()

    def write(self) -> None:
        """Store what is known so far, whole or not at all. A full disk must not disturb the program."""
        ends = self._ends()
        if len(ends) < 3 or not self.has_samples:
            return
        kind = next(kind for kind, each in self.ends.items() if each is ends)
        count, zero = min(len(ends), len(self.sites[kind])), self.begun_ns
        samples = [column[: len(self.samples[-1])] for column in self.samples]
        content = {
            "pid": os.getpid(), "start_unix_ns": self.begun_unix_ns, "end_ns": time.monotonic_ns() - zero,
            "parameter_bytes": self.parameter_bytes, "ends_ns": [each - zero for each in ends[:count]],
            "sites": self.sites[kind][:count].tolist(), "windows": self.windows,
            "site_lines": [_described(code, line) for code, line, _ in list(self.known_sites)],
            "site_callers": [_described(caller, None) for _, _, caller in list(self.known_sites)],
            "sample_ns": [each - zero for each in samples[0]], "sample_stack": samples[1].tolist(),
            "sample_evaluating": samples[2].tolist(), "sample_written": samples[3].tolist(),
            "frames": [_described(self.codes[code], line) for code, line in list(self.frames)],
            "stacks": [list(each) for each in list(self.stacks)],
            "iterators": [[begin - zero, end - zero, loader] for begin, end, loader in list(self.iterators)],
        }  # fmt: skip
        with contextlib.suppress(OSError):
            with open(self.path + ".tmp", "w", encoding="utf-8") as file:
                json.dump(content, file, separators=(",", ":"))
            os.replace(self.path + ".tmp", self.path)


def _described(code: Any, line: int | None) -> list[Any]:
    return [
        code.co_filename,
        line or code.co_firstlineno,
        getattr(code, "co_qualname", code.co_name),
        code.co_firstlineno,
    ]


def _is_inner(file: str) -> bool:
    """Is it a file of torch or of Python's own library?"""
    if "-packages" in file:
        return "-packages/torch/" in file
    return file.startswith((_PYTHON, "<frozen"))


_PYTHON = os.path.dirname(os.__file__) + os.sep


def _like(new: Any, original: Any) -> Any:
    new.__name__, new.__qualname__ = original.__name__, original.__qualname__
    new.__doc__, new.__wrapped__ = original.__doc__, original
    return new

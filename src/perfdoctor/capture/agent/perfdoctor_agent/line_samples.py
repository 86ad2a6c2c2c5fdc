"""Which line of the program was the training thread at, while its steps were recorded?

A thread of our own looks at the training thread's frames with `sys._current_frames()` every few milliseconds. A look
needs the GIL: Python gives it up when the training thread calls into torch or waits, and else when asked, which it does
after its switch interval. Left at Python's 5 ms, what a line without torch takes is given to the next line with torch:
a loop of 3 ms in a step of 9 ms, 33 % of the time, got 9 % of the looks, and a small op after it 28 instead of 6 %. So
the switch interval is shortened while we look (then 30 of 35 %, and 4 of 2 %); two busy threads of Python got no less
done with it. What holds the GIL for longer than our interval, a tokenizer in C, say, can be seen but once: looks that
were missed are told with the stack of the look that came late, since there the thread was all the while.

Looks come at uneven distances: a training step that takes just as long as some of them would be seen at the same lines
each time.

    rank<N>.lines.json {"perfdoctor_lines": 1, "pid", "thread": native id, "interval_ns",
                        "frames": ["/path/train.py(42): forward", ...],
                        "stacks": [[frame, ...], ...] innermost first,
                        "time_ns": [since 1970, ...], "stack": [stack, ...]}     one of each a look
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
import time
from array import array
from types import CodeType
from typing import Any

FORMAT = 1
#: A step of 50 ms is seen ten times, ten steps a hundred times; 25 µs a look are half a per cent.
INTERVAL_NS = 5_000_000
#: A look takes as much of the training thread as ours takes of the processor: 131 of 133, 161 of 165, 211 of 217 µs
#: (stacks of 15, 15 and 40 frames, a busy sandbox of two cores). More than this share, and we look half as often.
LARGEST_SHARE = 0.005
#: Looks after which that is judged: few enough to be cheap in any window, and what a short one is left with.
_JUDGED_EVERY = 32
#: 240 kB of times and stacks. Beyond, we look half as often too.
MOST_SAMPLES = 20_000
DEEPEST = 64
#: A tenth of our interval: what a look may come late by in a thread that never waits.
SWITCH_S = 0.0005
_LONGEST_WAIT_FOR_END_S = 1.0
#: Steps through the unit interval that never repeat and leave no gaps: uneven, and as often early as late.
_GOLDEN = 0.6180339887498949

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Where the agent itself works at a step's end: time that the program would not spend.
_OUR_WORK = "_beat"


class LineSamples:
    """`begin` in the thread to look at, `end` from any; then `write`. `pause` and `go_on` lie around a fork."""

    def __init__(self, interval_ns: int = INTERVAL_NS) -> None:
        self.interval_ns = interval_ns
        self.times_ns = array("q")
        self.stack = array("l")
        self.thread, self.native = 0, 0
        self._stacks: dict[tuple[int, ...], int] = {}
        self._frames: dict[int, int] = {}
        self._places: list[tuple[CodeType, int]] = []  # of a frame: its code, and the byte of the instruction in it
        self._running: list[tuple[Any, Any]] = []
        self._is_paused = False
        self._switch_s: float | None = None

    # --- on and off ---

    def begin(self) -> None:
        # Without a GIL the frames of another thread change while they are read.
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            return
        self.thread, self.native = threading.get_ident(), threading.get_native_id()
        self._start()

    def _start(self) -> None:
        to_end, ended = _thread.allocate_lock(), _thread.allocate_lock()
        to_end.acquire()
        ended.acquire()
        self._running = [(to_end, ended)]
        if sys.getswitchinterval() > SWITCH_S:
            self._switch_s = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_S)
        try:
            # Not threading.Thread: the program may count its threads, or have put hooks on them.
            _thread.start_new_thread(self._look_until, (to_end, ended, time.monotonic_ns()))
        except RuntimeError:  # no more threads here
            self._running = []
            self._restore_switch()

    def end(self) -> None:
        """The thread looks no more, and has let go of everything, when this returns."""
        self._is_paused = False
        try:
            to_end, ended = self._running.pop()
        except IndexError:
            return
        to_end.release()
        ended.acquire(True, _LONGEST_WAIT_FOR_END_S)
        self._restore_switch()

    def _restore_switch(self) -> None:
        # What the program has set since stays.
        if self._switch_s is not None and abs(sys.getswitchinterval() - SWITCH_S) < 1e-6:
            sys.setswitchinterval(self._switch_s)
        self._switch_s = None

    def pause(self) -> None:
        """Before a fork: Python warns of forks of a process with several threads, and the child gets none of them."""
        is_running = bool(self._running)
        self.end()
        self._is_paused = is_running

    def go_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._start()

    # --- the thread ---

    def _look_until(self, to_end: Any, ended: Any, begun_ns: int) -> None:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the program's
            self._look_on(to_end, begun_ns)
        except Exception:
            pass
        finally:
            ended.release()

    def _look_on(self, to_end: Any, begun_ns: int) -> None:
        phase, looks = 0.0, 0
        due_ns = judged_ns = begun_ns
        used_ns = time.thread_time_ns()
        while True:
            wait_ns, phase = self._next_wait(phase)
            due_ns += wait_ns
            if to_end.acquire(True, max(due_ns - time.monotonic_ns(), 0) / 1e9):
                return
            now_ns = time.monotonic_ns()
            missed = max((now_ns - due_ns) // self.interval_ns, 0)
            due_ns += missed * self.interval_ns
            self._look(missed)
            looks += 1
            if looks == _JUDGED_EVERY:
                used_ns, before_ns = time.thread_time_ns(), used_ns
                if used_ns - before_ns > LARGEST_SHARE * (now_ns - judged_ns):
                    self._look_half_as_often()
                looks, judged_ns = 0, now_ns
            if len(self.times_ns) > MOST_SAMPLES:
                self._look_half_as_often()

    def _next_wait(self, phase: float) -> tuple[int, float]:
        """Half an interval to one and a half, one in the mean."""
        phase = (phase + _GOLDEN) % 1
        return int(self.interval_ns * (0.5 + phase)), phase

    def _look(self, missed: int) -> None:
        """Frames are let go of before this returns: they hold the program's tensors."""
        frame = sys._current_frames().get(self.thread)
        now_ns = time.time_ns()
        key: list[int] = []
        frames, places = self._frames, self._places
        while frame is not None and len(key) < DEEPEST:
            code, at = frame.f_code, frame.f_lasti
            index = frames.setdefault((id(code) << 32) + at, len(places))
            if index == len(places):
                places.append((code, at))  # as long as it is kept here, nobody else gets its id
            key.append(index)
            frame = frame.f_back
        if not key:
            return  # the thread has ended
        stack = self._stacks.setdefault(tuple(key), len(self._stacks))
        for back in range(min(missed, MOST_SAMPLES), -1, -1):
            self.times_ns.append(now_ns - back * self.interval_ns)
            self.stack.append(stack)

    def _look_half_as_often(self) -> None:
        """Of the looks so far every second one is forgotten: each stands for as much time as those to come."""
        self.times_ns, self.stack = self.times_ns[1::2], self.stack[1::2]
        self.interval_ns *= 2

    # --- what was seen ---

    def write(self, path: str) -> None:
        """Whole or not there. Nothing where nothing was seen. What it cannot write, it lets go."""
        told, draft = self.told(), path + ".part"
        self._stacks, self._frames, self._places = {}, {}, []
        if not told["stack"]:
            return
        try:
            with open(draft, "w", encoding="utf-8") as file:
                json.dump(told, file, separators=(",", ":"))
            os.replace(draft, path)
        except OSError:
            _remove(draft)

    def told(self) -> dict[str, Any]:
        """What the file says: without looks at the agent's own work, and without the agent's own frames."""
        frames: dict[str, int] = {}
        stacks: dict[tuple[int, ...], int] = {}
        times_ns, stack = [], []
        shown = [self._shown(key, frames) for key in self._stacks]  # in the order of their numbers
        for now_ns, seen in zip(self.times_ns, self.stack):
            if shown[seen]:
                times_ns.append(now_ns)
                stack.append(stacks.setdefault(shown[seen], len(stacks)))
        return {
            "perfdoctor_lines": FORMAT,
            "pid": os.getpid(),
            "thread": self.native,
            "interval_ns": self.interval_ns,
            "frames": list(frames),
            "stacks": [list(each) for each in stacks],
            "time_ns": times_ns,
            "stack": stack,
        }

    def _shown(self, key: tuple[int, ...], frames: dict[str, int]) -> tuple[int, ...]:
        """The program's frames of a stack, as indices into `frames`, which grows; none while the agent worked."""
        places = [self._places[index] for index in key]
        ours = [code.co_filename.startswith(_OURS) for code, _ in places]
        if any(is_ours and code.co_name == _OUR_WORK for is_ours, (code, _) in zip(ours, places)):
            return ()
        named = [_named(code, at) for is_ours, (code, at) in zip(ours, places) if not is_ours]
        return tuple(frames.setdefault(name, len(frames)) for name in named)


def _named(code: CodeType, at: int) -> str:
    """`/path/train.py(42): forward`, as Kineto names frames, but the line that runs, not the function's first."""
    file = code.co_filename
    whole = os.path.abspath(file)
    return f"{whole if os.path.isfile(whole) else file}({_line(code, at)}): {code.co_name}"


def _line(code: CodeType, at: int) -> int:
    """The line of the instruction at byte `at`, as `frame.f_lineno` has it; the function's first where it has none."""
    if hasattr(code, "co_lines"):  # from Python 3.10 on
        lines = (line for begin, end, line in code.co_lines() if begin <= at < end)
        return next(lines, None) or code.co_firstlineno
    import dis

    lines = [line for begin, line in dis.findlinestarts(code) if begin <= at]
    return lines[-1] if lines else code.co_firstlineno


def _remove(file: str) -> None:
    try:
        os.unlink(file)
    except OSError:
        pass

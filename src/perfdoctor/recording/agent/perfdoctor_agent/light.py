"""What is known of every step of a whole training, at a microsecond a step, and how does it get onto disk?

The thread that trains appends one tuple a step. A thread of ours sums up so many steps at a time, and appends the sums,
a few hundred bytes of JSON, to a file of this process:

    {"first": 401, "steps": 25, "end": …, "sum": …, "q": [least, lower quartile, median, upper quartile, most],
     "by_gpu": true, "slow": [[413, …]], "wait": …, "host": …, "device": …, "busy": 25, "recorded": false}   a stretch
    {"at": …, "rss": …, "cpu": …, "delay": …, "batch": …, "gpu": [allocated, reserved]}     what it uses meanwhile

Times are ns, of `end` and `at` since 1970. `wait`: in a DataLoader's `__next__`, but for what the GPU's work hides;
`host`: the training thread on a core; `device`: a step by the GPU's own clock, 0 if unknown; `by_gpu`: that clock says
how long steps are (`q`, `slow`), as it is known of half of them; `busy`: steps through which the GPU is known to have
had work; `slow`: steps far beyond the others, by their number; `rss`: without pages of files; `batch`: how long ago the
last batch came, also outside of steps. The first line says who writes, the last one that the process has ended. A
stretch grows with the run, so that the file does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from perfdoctor_agent import private
from perfdoctor_agent.gpu_clock import GpuClock

FORMAT = 1
#: Steps of a stretch at first, and how many stretches are written before it is twice as long.
FIRST_STRETCH, STRETCHES = 25, 100
#: No stretch lasts longer, so that a run of days is followed as closely as one of an hour.
LONGEST_NS = 10_000_000_000
#: A stretch behind which no step has ended for so long, and for twice the last one, is written as it is.
_SILENT_NS = 2_000_000_000
#: How often the thread wakes: often enough to open a window within a second, rarely enough to cost nothing.
_PAUSE_S = 0.5
#: What the process uses: once a second in its first ten minutes, then every ten seconds.
_OFTEN_NS, _RARELY_NS, _AT_FIRST_NS = 1_000_000_000, 10_000_000_000, 600_000_000_000
#: A step beyond the median by half of it, and by so many times the distance of the quartiles, is noted by its number.
_SLOW_SHARE, _SLOW_SPREAD, _MOST_SLOW = 0.5, 3, 16
#: Steps that nobody has written yet, at most: of a disk that hangs.
_MOST_WAITING = 100_000
#: Behind each step that takes so long the training thread's time on a core is asked for; of shorter ones behind the
#: first that ends after the writing thread woke. The kernel says it, in 0.5 µs, and 7 µs where its code had left the
#: processor's caches.
_LONG_NS = 10_000_000
#: What the program holds on the GPU is asked for so often: torch makes a table of a hundred numbers for it.
_HELD_EVERY_NS = 1_000_000_000
_ENDING_S = 1.0


class _InStep(NamedTuple):
    """What runs in every step, as functions that share their variables.

    Behind the step of a small training, which has taken the processor's caches, each attribute costs as much as a
    call: an update took 2.2 µs more with the attributes of two objects, and takes 1.6 µs more so.
    """

    end: Callable[[bool], int]
    hook: Callable[..., Callable[[Any, Any, Any], None]]
    timed: Callable[..., Callable[[Any], Any]]
    begin: Callable[[int, bool], None]
    leave_to: Callable[[int], None]
    ask: Callable[[bool], None]
    known: Callable[[], tuple[int, int]]


def _in_step(
    append: Callable[[tuple[int, int, int, bool]], None], clock: Callable[[], int], used: Callable[[], int],
    gpu_ended: Callable[[int, int], None],
) -> _InStep:  # fmt: skip
    """`append` takes what is known of each step; `gpu_ended(number, now_ns)` does what a GPU needs besides."""
    count = waited_ns = batch_ns = alone = 0
    has_gpu, asks, is_long = False, True, True
    here = threading.get_ident

    def end(is_recorded: bool) -> int:
        nonlocal count, asks
        now_ns = clock()
        append((now_ns, used() if asks else -1, waited_ns, is_recorded))
        asks = is_long
        count += 1
        if has_gpu:
            gpu_ended(count, now_ns)
        return count

    def hook(
        is_tracing: Callable[[], bool], otherwise: Callable[[Any, Any, Any], None], failed: Callable[[Exception], None]
    ) -> Callable[[Any, Any, Any], None]:
        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_tracing():  # do not appear in what a compiler traces
                return
            if id(optimizer) != alone:
                otherwise(optimizer, args, kwargs)
                return
            try:
                end(False)
            except Exception as error:
                failed(error)

        return stepped

    def timed(original: Callable[[Any], Any], thread: int, gpu: GpuClock | None) -> Callable[[Any], Any]:
        def __next__(iterator: Any) -> Any:  # noqa: N807 in the place of torch's
            nonlocal waited_ns, batch_ns
            if here() != thread:  # one that fetches ahead does not keep the training waiting
                return original(iterator)
            event = None if gpu is None else gpu.wait_begins(clock())
            begun_ns = clock()
            batch = original(iterator)
            batch_ns = ended_ns = clock()
            if gpu is None or not gpu.hides_wait(event):
                waited_ns += ended_ns - begun_ns
            return batch

        return __next__

    def begin(number: int, on_gpu: bool) -> None:
        nonlocal count, has_gpu
        count, has_gpu = number, on_gpu
        append((clock(), used(), waited_ns, True))

    def leave_to(optimizer: int) -> None:
        nonlocal alone
        alone = optimizer

    def ask(of_each: bool) -> None:
        nonlocal asks, is_long
        asks, is_long = True, of_each

    return _InStep(end, hook, timed, begin, leave_to, ask, lambda: (count, batch_ns))


class LightSteps:
    """The steps of one process since it was known what a step is. `end` on the thread that trains, and nothing else."""

    def __init__(
        self, torch: Any, clock: Callable[[], int] = time.monotonic_ns, used: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self.torch = torch
        self.is_recorded = False  # in a window, or just behind one
        self.waiting: deque[tuple[int, int, int, bool]] = deque(maxlen=_MOST_WAITING)
        self._has_gpu, self.gpu_clock = False, GpuClock(torch)
        self.gpu: list[int] = []  # bytes allocated and reserved, on the device of the thread that trains
        self._gpu_ns = 0
        self._in_step = _in_step(self.waiting.append, clock, used, self._gpu_ended)
        self._undo: Callable[[], None] = lambda: None

    @property
    def count(self) -> int:
        """Steps since the program began, those before `begin` included."""
        return self._in_step.known()[0]

    @property
    def batch_ns(self) -> int:
        """When the last batch came; 0: none."""
        return self._in_step.known()[1]

    def begin(self, count: int) -> None:
        """Begin behind so many steps, on the thread that trains."""
        self._has_gpu = bool(self.torch.cuda.is_initialized())
        self._in_step.begin(count, self._has_gpu)
        self._install(threading.get_ident())

    def end(self) -> int:
        """Note the end of a step; returns its number."""
        return self._in_step.end(self.is_recorded)

    def hook(
        self, otherwise: Callable[[Any, Any, Any], None], failed: Callable[[Exception], None]
    ) -> Callable[[Any, Any, Any], None]:
        """What torch is to call behind each update: it notes those of the optimizer of `alone`, and leaves others to
        `otherwise`. An error of ours goes to `failed`.
        """
        compiler = self.torch.compiler
        # The quicker one, where torch has it: the compiler knows both.
        return self._in_step.hook(getattr(compiler, "is_dynamo_compiling", compiler.is_compiling), otherwise, failed)

    def alone(self, optimizer: Any) -> None:
        """From now on nothing is done behind updates of this optimizer but to note them; None: behind those of none."""
        self._in_step.leave_to(0 if optimizer is None else id(optimizer))

    def ask(self, of_each: bool) -> None:
        """Note the thread's time on a core with the next step; `of_each`: and with all that follow."""
        self._in_step.ask(of_each)

    def leave(self) -> None:
        """Remove what was put into torch."""
        self.alone(None)
        self._undo()
        self._undo = lambda: None

    def _gpu_ended(self, count: int, now_ns: int) -> None:
        """Mark the end of a step on the GPU, and now and then note what is held on it: another thread has another
        device, and comes in the middle of a step, when more is held.
        """
        if not self.gpu_clock.step_ended(count, now_ns) or now_ns - self._gpu_ns <= _HELD_EVERY_NS:
            return
        self._gpu_ns, cuda = now_ns, self.torch.cuda
        with contextlib.suppress(Exception):
            self.gpu = [cuda.memory_allocated(), cuda.memory_reserved()]

    def _install(self, thread: int) -> None:
        """Time how long the training waits for the next batch of a DataLoader."""
        base = private.find(self.torch, private.LOADER_ITERATOR)
        if base is not None:
            gpu = self.gpu_clock if self._has_gpu else None
            self._undo = private.replace(base, "__next__", self._in_step.timed(base.__next__, thread, gpu))


class RowWriter:
    """The thread that writes. `who`: the first line. `asked()` is called each time it wakes.

    Nothing is raised, and what a full disk does not take is lost.
    """

    def __init__(self, path: str, steps: LightSteps, who: dict[str, Any], asked: Callable[[], None]) -> None:
        self.path, self.steps, self.asked = path, steps, asked
        self._who, self._file = who, -1
        self._lines: list[str] = [_line(format=FORMAT, **who)]
        self._stretch: list[tuple[int, int, int, bool]] = []
        self._before: tuple[int, int, int, bool] | None = None
        self._first, self._length, self._written = steps.count + 1, FIRST_STRETCH, 0
        self._used = (0, 0)  # of the thread that trains, and the step up to which that is
        self._host_ns = 0.0  # a step
        self._is_long = True  # do steps take so long that the time of each on a core is asked for?
        self._unix_ns = time.time_ns() - time.monotonic_ns()
        self._begun_ns = time.monotonic_ns()
        self._used_ns = 0
        self._thread_file = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._write_on, name="perfdoctor-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, why: str = "") -> None:
        """Write what is left, and that this is the end."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(_ENDING_S)
        if self._lock.acquire(timeout=_ENDING_S):  # a disk that hangs is left
            with contextlib.suppress(Exception):
                self._take(is_last=True)
                self._lines.append(_line(ended=time.time_ns(), why=why))
                self._flush()
                os.close(self._file)

    def _write_on(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter ends, or is out of memory: the program goes on
            while not self._stop.wait(_PAUSE_S):
                with self._lock:
                    self._take()
                    self._use()
                    self._flush()
                self.asked()

    def _take(self, *, is_last: bool = False) -> None:
        """Take what the training has left, as far as its GPU is, and close the stretches that are long enough."""
        waiting, stretch = self.steps.waiting, self._stretch
        now_ns, gpu = time.monotonic_ns(), self.steps.gpu_clock
        self._unix_ns = time.time_ns() - now_ns
        ends = self._last_ends()
        # Steps that take seconds are no silence: a stretch of one of them says nothing of how steps differ.
        patience_ns = max(_SILENT_NS, 2 * (ends[-1] - ends[0]), 2 * gpu.behind_ns) if ends else _SILENT_NS
        # Where no step ends any more it is written, too, which was the last one.
        is_last = is_last or (bool(ends) and now_ns - ends[-1] > patience_ns)
        known = gpu.known_up_to
        while waiting:
            is_overdue = is_last or now_ns - waiting[0][0] > LONGEST_NS + patience_ns
            if not is_overdue and self._before is not None and self._first + len(stretch) > known:
                break
            each = waiting.popleft()
            if self._before is None:
                self._before, self._used = each, (each[1], self._first - 1)
                continue
            if stretch and each[3] != stretch[-1][3]:
                self._close()
            stretch.append(each)
            if len(stretch) >= self._length or each[0] - self._before[0] >= LONGEST_NS:
                self._close()
        if stretch and is_last:
            self._close()
        self.steps.ask(self._is_long)

    def _last_ends(self) -> list[int]:
        """When the last two steps ended, as far as there are two."""
        waiting = self.steps.waiting
        left = [waiting[at] for at in (-2, -1) if len(waiting) >= -at]
        return [each[0] for each in (self._before, *self._stretch[-2:], *left) if each is not None][-2:]

    def _close(self) -> None:
        stretch, before = self._stretch, self._before
        assert before is not None
        ends = [before[0], *(each[0] for each in stretch)]
        lengths = [b - a for a, b in zip(ends, ends[1:])]
        end = stretch[-1]
        sums: dict[str, Any] = {"sum": end[0] - before[0], "wait": end[2] - before[2]}
        # The mean of a longer time may hold steps that took longer.
        sums.update(host=min(round(self._host_of(stretch) * len(stretch)), sums["sum"]), recorded=end[3])
        sums.update(_summed(self._first, lengths, self.steps.gpu_clock))
        self._lines.append(_line(first=self._first, steps=len(stretch), end=end[0] + self._unix_ns, **sums))
        self._first += len(stretch)
        self._is_long = end[0] - before[0] >= _LONG_NS * len(stretch)
        self._before = end
        stretch.clear()
        self._written += 1
        if self._written % STRETCHES == 0:
            self._length *= 2

    def _host_of(self, stretch: list[tuple[int, int, int, bool]]) -> float:
        """What the training thread uses of a core in a step: a mean up to the last step of which it is known."""
        known = [(used, self._first + at) for at, (_, used, _, _) in enumerate(stretch) if used >= 0]
        if known:
            (before, first), (after, last) = self._used, known[-1]
            if first and last > first:
                self._host_ns = (after - before) / (last - first)
            self._used = known[-1]
        return self._host_ns

    def _use(self) -> None:
        now_ns = time.monotonic_ns()
        every_ns = _OFTEN_NS if now_ns - self._begun_ns < _AT_FIRST_NS else _RARELY_NS
        if now_ns - self._used_ns < every_ns - 100_000_000:
            return
        self._used_ns = now_ns
        facts: dict[str, Any] = {"cpu": time.process_time_ns()}
        with contextlib.suppress(OSError, ValueError, IndexError):
            facts["rss"] = _held_bytes()
            with open(self._thread_file, "rb") as file:
                facts["delay"] = int(file.read().split()[1])
        if self.steps.batch_ns:
            facts["batch"] = max(now_ns - self.steps.batch_ns, 0)
        if self.steps.gpu:
            facts["gpu"] = self.steps.gpu
        self._lines.append(_line(at=time.time_ns(), **facts))

    def _flush(self) -> None:
        if not self._lines:
            return
        content = "".join(self._lines).encode("ascii")
        self._lines.clear()
        with contextlib.suppress(OSError):
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.write(self._file, content)


def _summed(first: int, lengths: list[int], clock: GpuClock) -> dict[str, Any]:
    """How long the steps of a stretch are, from `first` on; `lengths` by the host's clock.

    A host that runs ahead has short steps, and a long one where it waits: the GPU's clock counts where it is known.
    """
    pieces = clock.of(first, first + len(lengths) - 1)
    known = [each_ns for before, end, each_ns, _ in pieces for _ in range(end - before)]
    by_gpu = 2 * len(known) >= len(lengths)
    ordered = sorted(known if by_gpu else lengths)
    last = len(ordered) - 1
    quartiles = [ordered[(last * quarter + 2) // 4] for quarter in range(5)]
    more_ns = max(_SLOW_SHARE * quartiles[2], _SLOW_SPREAD * (quartiles[3] - quartiles[1]))
    slow: list[list[int]] = []
    if by_gpu:
        slow = _slow_by_gpu(first, lengths, pieces, quartiles[2], more_ns)
        quartiles[4] = max(quartiles[4], *lengths)  # for so long no step was heard of
    elif not clock.is_known:
        slow = [[first + at, length] for at, length in enumerate(lengths) if length > quartiles[2] + more_ns]
    # The first ones, not the longest: those of one period may be shorter than others, and none is to be missing.
    return {
        "q": quartiles, "by_gpu": by_gpu, "slow": slow[:_MOST_SLOW],
        "device": round(sum(known) / len(known)) if known else 0,
        "busy": sum(end - before for before, end, _, is_busy in pieces if is_busy),
    }  # fmt: skip


def _slow_by_gpu(
    first: int, lengths: list[int], pieces: list[tuple[int, int, int, bool]], median_ns: int, more_ns: float
) -> list[list[int]]:
    """Slow steps. Of several between two events it is the one that took the host longest."""
    found = []
    for before, end, each_ns, _ in pieces:
        beyond_ns = (end - before) * (each_ns - median_ns)
        if beyond_ns > more_ns:
            number = max(range(before + 1, end + 1), key=lambda each: lengths[each - first])
            found.append([number, median_ns + beyond_ns])
    return found


def _held_bytes() -> int:
    """Memory that the process has for itself, and shares with a loader's workers. Pages of files that it has mapped are
    none of it: they are the kernel's, which takes them back when it needs them.
    """
    with open("/proc/self/status", "rb") as file:
        kinds = dict(line.split(b":", 1) for line in file if line.startswith(b"Rss"))
    if b"RssAnon" in kinds:
        return sum(int(kinds[name].split()[0]) << 10 for name in (b"RssAnon", b"RssShmem"))
    with open("/proc/self/statm", "rb") as file:  # before Linux 4.5, and where another kernel acts as one
        resident, shared = (int(each) for each in file.read().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _line(**facts: Any) -> str:
    """A line behind a line break: of one that a full disk has cut only that one is lost."""
    return "\n" + json.dumps(facts, separators=(",", ":"))

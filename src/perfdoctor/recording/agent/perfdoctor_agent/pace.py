"""How long is a step while nothing is recorded? From the ends of steps before the recorded window and behind it.

A host that runs ahead of its GPU ends its steps sooner than the GPU does. Where the process uses CUDA, an event in the
stream therefore marks each end, and the GPU's clock counts. There launches cost more behind the window, as CUPTI stays
in the process: on an H100 steps that the host paces took 1.15 to 1.6 times as long as in a run without a recorder. The
faster of the two sides counts.

On a CPU the profiler leaves the program faster than it was: it frees large blocks, whereupon glibc keeps what is freed
later (its thresholds for mmap and trim grow: man 3 mallopt), and tensors need no new pages any more. Two trainings took
4,000 page faults a step before and none behind, and were 10 % faster. Faults that are missing behind the window are
added, for what one takes on this machine.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from typing import Any

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # Windows
    getrusage = None  # type: ignore[assignment]

#: At least so many steps behind the window are timed: writing the trace empties the processor's caches, and the first
#: ten of 0.7 ms were still up to 15 % longer than later ones.
STEPS_BEHIND = 20
#: While they are short, more: a disturbance of a second covers twenty of 40 ms.
_MOST_BEHIND, _LONG_ENOUGH_NS = 100, 10_000_000_000
#: One step proves nothing.
_FEWEST = 2
#: Fewer on one side of the window are not held against the other side.
_FEWEST_OF_A_SIDE = 3
#: Beyond so many times the distance of the quartiles a step was disturbed (Tukey, Exploratory Data Analysis, 1977).
_FENCE = 3.0

#: Pages that are touched to see what one costs; the least of so many turns counts.
_PAGES, _TURNS = 256, 4

HOST, DEVICE = "host", "device"


class StepEnds:
    """The last ends of steps before the recorded ones, or after them."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.count = 0
        self.ends: deque[tuple[int, Any]] = deque(maxlen=_MOST_BEHIND + 2)
        self.faults: deque[int] = deque(maxlen=_MOST_BEHIND + 2)

    def add(self, now_ns: int) -> None:
        self.count += 1
        self.ends.append((now_ns, event_here(self.torch)))
        if getrusage is not None:
            self.faults.append(getrusage(RUSAGE_SELF).ru_minflt)

    @property
    def last_ns(self) -> int:
        """Length of the last step by the host's clock; 0 before there is one."""
        return self.ends[-1][0] - self.ends[-2][0] if len(self.ends) > 1 else 0

    @property
    def faults_per_step(self) -> int:
        """Page faults of the process in a steady step: the least behind the first one, as memory fills at first."""
        faults = list(self.faults)[1:]
        return min((b - a for a, b in zip(faults, faults[1:])), default=0)

    @property
    def is_enough(self) -> bool:
        """Were as many steps timed as are wanted behind the window?"""
        lasted_ns = self.ends[-1][0] - self.ends[0][0] if self.ends else 0
        return self.count > _MOST_BEHIND or (self.count > STEPS_BEHIND and lasted_ns > _LONG_ENOUGH_NS)

    def steps_ns(self) -> tuple[str, list[int]]:
        """The clock, and the steps in ns without the first one, in which the program warms up or cools down."""
        ends = list(self.ends)
        if any(event is not None for _, event in ends):
            events = [event for _, event in ends if event is not None]
            events[-1].synchronize()
            return DEVICE, between_ns(events)[1:]
        times = [now_ns for now_ns, _ in ends]
        return HOST, [b - a for a, b in zip(times, times[1:])][1:]


def unrecorded(before: StepEnds, behind: StepEnds | None = None) -> dict[str, Any]:
    """Facts of the report: mean length of undisturbed steps in ns (0: not known), how many, and by which clock.

    The first steps of a program are slower than later ones: they count only where there are too few behind the window.
    """
    parts = [part for part in (before, behind) if part is not None and part.count]
    sides = [part.steps_ns() for part in parts]
    clock = DEVICE if any(each == DEVICE for each, _ in sides) else HOST
    if behind is not None and behind.count > STEPS_BEHIND:
        parts = [behind]
    counted = [steps for each, steps in sides[-len(parts) :] if each == clock]
    if clock == DEVICE:
        enough = [steps for each, steps in sides if each == DEVICE and len(steps) >= _FEWEST_OF_A_SIDE]
        counted = [min(enough, key=_undisturbed_mean)] if enough else counted
    steps = [step_ns for side in counted for step_ns in side]
    mean = _undisturbed_mean(steps) if len(steps) >= _FEWEST else 0
    if mean and clock == HOST and behind is not None and parts == [behind]:
        mean += _spared_ns(before.faults_per_step, behind)
    return {"unwatched_step_ns": mean, "unwatched_steps": len(steps), "unwatched_clock": clock}


def _undisturbed_mean(steps_ns: list[int]) -> int:
    """Mean of the steps that nothing made longer. A median would take one kind of steps where two alternate."""
    most = _most_undisturbed_ns(steps_ns)
    kept = [each for each in steps_ns if each <= most]
    return round(sum(kept) / len(kept))


def _most_undisturbed_ns(steps_ns: list[int]) -> float:
    ascending = sorted(steps_ns)
    last = len(ascending) - 1
    first_quartile, third_quartile = ascending[last // 4], ascending[(3 * last) // 4]
    return third_quartile + _FENCE * (third_quartile - first_quartile)


def _spared_ns(faults_before: int, behind: StepEnds) -> int:
    """Ns that a step behind the window is spared, as it needs fewer new pages than the steps before."""
    faults = list(behind.faults)[1:]
    each = (faults[-1] - faults[0]) / (len(faults) - 1) if len(faults) > 1 else faults_before
    spared = faults_before - each
    return round(spared * max(min(_fault_ns() for _ in range(_TURNS)), 0.0)) if spared > _PAGES else 0


def _fault_ns() -> float:
    """Ns that the first touch of a page takes beyond those of a later one."""
    size = _PAGES * mmap.PAGESIZE
    with mmap.mmap(-1, size) as pages:
        times = [time.perf_counter_ns()]
        for _ in range(2):
            for at in range(0, size, mmap.PAGESIZE):
                pages[at] = 1
            times.append(time.perf_counter_ns())
    return (times[1] - times[0] - (times[2] - times[1])) / _PAGES


def between_ns(events: list[Any]) -> list[int]:
    """The ns from each event, which is over, to the next one, by the GPU's clock."""
    return [round(a.elapsed_time(b) * 1e6) for a, b in zip(events, events[1:])]


def event_here(torch: Any) -> Any:
    """Record an event in the current stream; None where no GPU is at work, or a graph is captured."""
    try:
        if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    except Exception:  # the program goes on, and the step's length is not known
        return None
    return event

"""How long is a step while nothing is recorded? From the ends of steps before the recorded window and behind it.

A host that runs ahead of its GPU ends its steps sooner than the GPU does. Where the process uses CUDA, an event in the
stream therefore marks each end, and the GPU's clock counts.
"""

from __future__ import annotations

from collections import deque
from typing import Any

#: At least so many steps behind the window are timed: writing the trace empties the processor's caches, and the first
#: ten of 0.7 ms were still up to 15 % longer than later ones.
STEPS_BEHIND = 20
#: While they are short, more: a disturbance of a second covers twenty of 40 ms.
_MOST_BEHIND, _LONG_ENOUGH_NS = 100, 10_000_000_000
#: One step proves nothing.
_FEWEST = 2
#: Beyond so many times the distance of the quartiles a step was disturbed (Tukey, Exploratory Data Analysis, 1977).
_FENCE = 3.0

HOST, DEVICE = "host", "device"


class StepEnds:
    """The last ends of steps in one part of the program, without any that are recorded."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.count = 0
        self.ends: deque[tuple[int, Any]] = deque(maxlen=_MOST_BEHIND + 2)

    def add(self, now_ns: int) -> None:
        self.count += 1
        self.ends.append((now_ns, _event(self.torch)))

    @property
    def is_enough(self) -> bool:
        """Were as many steps timed as are wanted behind the window?"""
        lasted_ns = self.ends[-1][0] - self.ends[0][0] if self.ends else 0
        return self.count > _MOST_BEHIND or (self.count > STEPS_BEHIND and lasted_ns > _LONG_ENOUGH_NS)

    def steps_ns(self) -> tuple[str, list[int]]:
        """The clock, and the length of each step but the first: it still warms up, or cools down."""
        ends = list(self.ends)
        if any(event is not None for _, event in ends):
            events = [event for _, event in ends if event is not None]
            events[-1].synchronize()
            return DEVICE, [round(a.elapsed_time(b) * 1e6) for a, b in zip(events, events[1:])][1:]
        times = [now_ns for now_ns, _ in ends]
        return HOST, [b - a for a, b in zip(times, times[1:])][1:]


def unrecorded(before: StepEnds, behind: StepEnds | None = None) -> dict[str, Any]:
    """What is reported: the mean length of undisturbed steps in ns (0: not known), how many, and by which clock.

    The first steps of a program are slower than later ones: they count only where there are too few behind the window.
    """
    parts = [part for part in (before, behind) if part is not None and part.count]
    if behind is not None and behind.count > STEPS_BEHIND:
        parts = [behind]
    known = [part.steps_ns() for part in parts]
    clock = DEVICE if any(each == DEVICE for each, _ in known) else HOST
    steps = [step_ns for each, steps_ns in known if each == clock for step_ns in steps_ns]
    mean = _undisturbed_mean(steps) if len(steps) >= _FEWEST else 0
    return {"unwatched_step_ns": mean, "unwatched_steps": len(steps), "unwatched_clock": clock}


def _undisturbed_mean(steps_ns: list[int]) -> int:
    """A median would take one kind of steps where two alternate. What disturbs a step makes it longer."""
    ascending = sorted(steps_ns)
    last = len(ascending) - 1
    first_quartile, third_quartile = ascending[last // 4], ascending[(3 * last) // 4]
    most = third_quartile + _FENCE * (third_quartile - first_quartile)
    kept = [each for each in ascending if each <= most]
    return round(sum(kept) / len(kept))


def _event(torch: Any) -> Any:
    """A mark in the current stream; None where there is no GPU at work, or a graph is captured."""
    try:
        if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    except Exception:  # the program goes on, and the step's length is not known
        return None
    return event

"""How long is a step while nothing is recorded? From the ends of steps before the recorded window and behind it.

A host that runs ahead of its GPU ends its steps sooner than the GPU does. Where the process uses CUDA, an event in the
stream therefore marks each end, and the GPU's clock counts.
"""

from __future__ import annotations

from collections import deque
from typing import Any

#: So many steps behind the window are timed. Writing the trace empties the processor's caches: the first ten of 0.7 ms
#: were still up to 15 % longer than later ones.
STEPS_BEHIND = 20
_KEPT = STEPS_BEHIND
#: One step proves nothing.
_FEWEST = 2

HOST, DEVICE = "host", "device"


class StepEnds:
    """The last ends of steps in one part of the program, without any that are recorded."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.count = 0
        self.ends: deque[tuple[int, Any]] = deque(maxlen=_KEPT + 2)

    def add(self, now_ns: int) -> None:
        self.count += 1
        self.ends.append((now_ns, _event(self.torch)))

    def steps_ns(self) -> tuple[str, list[int]]:
        """The clock, and the length of each step but the first: it still warms up, or cools down."""
        ends = list(self.ends)
        if any(event is not None for _, event in ends):
            events = [event for _, event in ends if event is not None]
            events[-1].synchronize()
            return DEVICE, [round(a.elapsed_time(b) * 1e6) for a, b in zip(events, events[1:])][1:]
        times = [now_ns for now_ns, _ in ends]
        return HOST, [b - a for a, b in zip(times, times[1:])][1:]


def unrecorded(*parts: StepEnds) -> dict[str, Any]:
    """What is reported: the median length of all steps in ns (0: not known), how many, and by which clock.

    Of an even number the lower of the two in the middle: what disturbs a step makes it longer.
    """
    known = [part.steps_ns() for part in parts if part.count]
    clock = DEVICE if any(each == DEVICE for each, _ in known) else HOST
    steps = sorted(step_ns for each, steps_ns in known if each == clock for step_ns in steps_ns)
    median = steps[(len(steps) - 1) // 2] if len(steps) >= _FEWEST else 0
    return {"unwatched_step_ns": median, "unwatched_steps": len(steps), "unwatched_clock": clock}


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

"""How long are steps by the GPU's own clock? Events at their ends, read when the GPU has passed them; nothing waits.

A host that runs ahead of its GPU ends steps sooner than the GPU does, and pays for it where it waits: its own clock
does not say how long a step is.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from perfdoctor_agent.pace import event_here

#: One event in so many ns of steps, and one of waits for batches: recording and asking takes some 5 µs.
_EVERY_NS = 4_000_000
_MOST_EVENTS, _MOST_PIECES = 64, 100_000
_ALL = 1 << 62


class GpuClock:
    """`passed`: pieces of the training, one behind the other: behind which step, up to which step, ns of each of these
    steps, and whether the GPU had work all through them.

    Only the thread that trains may ask for events: any other one would break the capture of a graph.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.passed: deque[tuple[int, int, int, bool]] = deque(maxlen=_MOST_PIECES)
        # The last one that the GPU has passed, and those that it has not; did it have work when each was recorded?
        self._events: deque[tuple[int, Any, bool]] = deque()
        self._event_ns = self._wait_ns = 0
        self._is_hidden = False
        self.is_known = False  # has it passed any step?

    def step_ended(self, number: int, now_ns: int) -> bool:
        """Mark the end of a step, and read the marks that the GPU has passed. False where it is not this one's turn."""
        if now_ns - self._event_ns <= _EVERY_NS:
            return False
        event = event_here(self.torch)
        if event is None:
            return False
        self._event_ns, events = now_ns, self._events
        try:
            self._read()
            # What is left of the step before, when all of this one is launched, keeps the GPU at work through both.
            events.append((number, event, len(events) > 1))
        except Exception:  # a device that failed: the program gets to know by itself
            events.clear()
        if len(events) > _MOST_EVENTS:
            events.popleft()
        return True

    def _read(self) -> None:
        events = self._events
        while len(events) > 1 and events[1][1].query():
            (first, before, _), (last, after, is_busy) = events[0], events[1]
            each_ns = round(before.elapsed_time(after) * 1e6 / (last - first))
            self.passed.append((first, last, each_ns, is_busy))
            self.is_known = True
            events.popleft()  # the thread that writes sees by this that it is known

    @property
    def known_up_to(self) -> int:
        """The step up to which all is known that will ever be; from any thread."""
        try:
            return self._events[0][0]
        except IndexError:
            return _ALL

    @property
    def behind_ns(self) -> int:
        """How far the GPU is behind the thread that trains, by what its steps took of late; from any thread."""
        try:
            first, last, each_ns = self._events[0][0], self._events[-1][0], self.passed[-1][2]
        except IndexError:
            return 0
        return (last - first) * each_ns

    def of(self, first: int, last: int) -> list[tuple[int, int, int, bool]]:
        """The pieces of these steps, cut to them. Called by one thread, for steps further and further on."""
        found = []
        while self.passed and self.passed[0][0] < last:
            before, end, each_ns, is_busy = self.passed[0]
            if end >= first:
                found.append((max(before, first - 1), min(end, last), each_ns, is_busy))
            if end > last:  # the rest of it is of the next steps
                break
            self.passed.popleft()
        return found

    def wait_begins(self, now_ns: int) -> Any:
        """An event behind all that the GPU has to do, for `hides_wait`. None where the last answer still holds."""
        if now_ns - self._wait_ns < _EVERY_NS:
            return None
        self._wait_ns = now_ns
        return event_here(self.torch)

    def hides_wait(self, event: Any) -> bool:
        """Did the GPU work all through the wait that has ended? `event`: what `wait_begins` returned."""
        if event is not None:
            try:
                self._is_hidden = not event.query()
            except Exception:
                self._is_hidden = False
        return self._is_hidden

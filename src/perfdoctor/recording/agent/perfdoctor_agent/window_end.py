"""After how many steps does the recorded window end?

After as many as were asked for. If no number was, after the fewest that show how steps differ, and not before enough
time has passed for stacks to be sampled: of ten steps of 8 ms there are five samples. Nor is it longer than the fewest
where the recording fills the memory: torch.profiler holds 0.8 to 2 kB an op, and as much again while its trace is
written. That is what malloc has given out. The resident set may grow by more, by tensors of 2 MB 6 MB a step, for what
the profiler holds lies in what they left, and the next ones no longer fit there.

The ranks of a job end it with the same step, as far as they share a file system: the first that has enough writes into
a file which step is to be the last. Ranks that wait for each other in each step are at most one apart.

Where a step does not end, as an evaluation runs in it, the window is over in the middle of that step. What counts is
how long steps usually are: a training whose steps take a minute is recorded like any other.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

#: Some 40,000 ops, whose trace of 10 MB takes a quarter of a second to write, while which the program waits. What the
#: program itself comes to hold meanwhile counts as well: it has less to spare then.
_MOST_BYTES = 32 << 20
#: Of the resident set where it is known what malloc has given out; it is given back when the trace is written.
_MOST_RESIDENT_BYTES = 256 << 20
#: A step that has lasted so many times a usual one, and so long at least, is none of the usual ones.
_OVERDUE, _OVERDUE_NS = 20, 30_000_000_000
#: Or so many times, where the process has grown by so much meanwhile: the program waits while as much is written.
_FILLING, _FILLING_NS, _MOST_OPEN_BYTES = 10, 1_000_000_000, 64 << 20
#: What a step may take where no length is known: 120 s are not too long then.
_UNKNOWN_STEP_NS = 6_000_000_000
#: A rank may be one step behind another, and read the file before it is written.
_AHEAD = 2


class WindowEnd:
    """`settings`: `steps` are the fewest, `most_steps` the most, `least_ns` what they last at least."""

    def __init__(self, settings: Any) -> None:
        self.fewest, self.least_ns = settings["steps"], settings.get("least_ns", 0)
        self.most = settings.get("most_steps", self.fewest)
        self.traces = settings["traces"]
        self._resident_bytes = 0

    def begin(self) -> None:
        self._resident_bytes = _resident_bytes()

    def is_reached(self, recorded: int, lasted_ns: int, job: str, heap: int | None = None) -> bool:
        """Is the window over after so many steps, which lasted so long? `job`: of several ranks, else "".

        `heap`: bytes that malloc has given out since the first step; None where it is not known.
        """
        if recorded >= self.most:
            return True
        if job and self.fewest < self.most and recorded >= self.fewest - _AHEAD:
            then_ns = lasted_ns * (recorded + _AHEAD) // recorded
            last = self._agreed(job, recorded + _AHEAD if self._is_enough(then_ns, heap) else 0)
            if last:
                return recorded >= last
        return recorded >= self.fewest and self._is_enough(lasted_ns, heap)

    def _is_enough(self, lasted_ns: int, heap: int | None) -> bool:
        if lasted_ns >= self.least_ns or (heap or 0) > _MOST_BYTES:
            return True
        return self._growth() > (_MOST_BYTES if heap is None else _MOST_RESIDENT_BYTES)

    def is_overdue(self, open_ns: int, usual_ns: int) -> bool:
        """Is the step that is open for so long not worth recording any more? `usual_ns`: of a step, 0 if unknown."""
        usual_ns = usual_ns or _UNKNOWN_STEP_NS
        if open_ns > max(_OVERDUE * usual_ns, _OVERDUE_NS):
            return True
        return open_ns > max(_FILLING * usual_ns, _FILLING_NS) and self._growth() > _MOST_OPEN_BYTES

    @property
    def is_written_soon(self) -> bool:
        """Is what was recorded little enough for a program that has not come to the end of its step?"""
        return self._growth() <= _MOST_RESIDENT_BYTES

    def _growth(self) -> int:
        """Bytes by which the process has grown since the first step."""
        return _resident_bytes() - self._resident_bytes

    def _agreed(self, job: str, proposed: int) -> int:
        """The last step of all ranks; `proposed` where none has said so yet, and 0 where that is 0, too."""
        name = "".join(letter if letter.isalnum() else "-" for letter in job)
        path = os.path.join(self.traces, f"last-step-{name}")
        with contextlib.suppress(OSError, ValueError):
            if proposed:
                with contextlib.suppress(FileExistsError):
                    draft = f"{path}.{os.getpid()}"
                    with open(draft, "x") as file:
                        file.write(str(proposed))
                    try:
                        os.link(draft, path)  # whole, and only one
                    finally:
                        os.unlink(draft)
            with open(path) as file:
                return int(file.read())
        return 0


def _resident_bytes() -> int:
    """Memory of this process; 0 where it is not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0

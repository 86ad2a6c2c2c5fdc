"""After how many steps does the recorded window end?

After as many as were asked for. If no number was, after the fewest that show how steps differ, and not before enough time
has passed for stacks to be sampled: of ten steps of 8 ms there are five samples.

The ranks of a job end it with the same step, as far as they share a file system: the first that has enough writes into a
file which step is to be the last. Ranks that wait for each other in each step are at most one apart.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

#: A rank may be one step behind another, and read the file before it is written.
_AHEAD = 2


class WindowEnd:
    """`settings`: `steps` are the fewest, `most_steps` the most, `least_ns` what they last at least."""

    def __init__(self, settings: Any) -> None:
        self.fewest, self.least_ns = settings["steps"], settings.get("least_ns", 0)
        self.most = settings.get("most_steps", self.fewest)
        self.traces = settings["traces"]

    def is_reached(self, recorded: int, lasted_ns: int, job: str) -> bool:
        """Is the window over after so many steps, which lasted so long? `job`: of several ranks, else ""."""
        if recorded < self.fewest or self.fewest >= self.most:
            return recorded >= self.fewest
        is_enough = lasted_ns >= self.least_ns
        if not job or recorded >= self.most:
            return is_enough or recorded >= self.most
        last = self._agreed(job, recorded + _AHEAD if is_enough else 0)
        return recorded >= last if last else is_enough

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

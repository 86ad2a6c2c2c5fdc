"""How long did a whole run take, and what did the training do between its steps?"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from perfdoctor.records.findings import CodeLine


class RunTime(Struct, frozen=True):
    """The partition of a whole run on one rank, in ns: `wall_ns` is the sum of `steps_ns` and all of `between_ns`.

    `between_ns`: by kind (`vocabulary/pauses.toml`), and `start` until the first step ended, with what kinds took more
    the first time; `recording` that perfdoctor took, `end` behind the last step, `unnoted` once steps were no longer
    noted, of which no kind is known. `share`: of each kind, 0 to 1, of the time of steps and between them.
    `every_steps`: how many steps lie from one to the next; without kinds of which that is not known. `count`: how often
    it was seen, at least. `lines`: where the training thread stands meanwhile. `rank`: whose run it is.
    `callers`: the line of the loop that calls them. `samples`: how many showed the kind; `forward_share`: of them, in
    how many the training thread was in a module's forward pass. `steps`: how many steps ended; `usual_step_ns`: one
    without anything between.
    """

    wall_ns: int
    steps_ns: int
    between_ns: Mapping[str, int]
    every_steps: Mapping[str, int]
    share: Mapping[str, float]
    count: Mapping[str, int]
    lines: Mapping[str, CodeLine]
    callers: Mapping[str, CodeLine]
    samples: Mapping[str, int]
    forward_share: Mapping[str, float]
    rank: int
    steps: int
    usual_step_ns: int

    @property
    def training_ns(self) -> int:
        """The time of steps and of what is between them, without start, recording and end."""
        return self.steps_ns + sum(ns for kind, ns in self.between_ns.items() if kind in self.share)

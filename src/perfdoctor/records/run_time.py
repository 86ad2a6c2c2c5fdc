"""How long did a whole run take, and what did the training do between its steps?"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from perfdoctor.records.findings import CodeLine


class RunTime(Struct, frozen=True):
    """The partition of a whole run on one rank, in ns: `wall_ns` is the sum of `steps_ns` and all of `between_ns`.

    `between_ns`: by kind (`vocabulary/pauses.toml`), and `start` until the first step ended, `recording` that perfdoctor
    took, `end` behind the last step. `share`: of each kind, 0 to 1, of the time of steps and what is between them.
    `every_steps`: how many steps lie from one to the next; without kinds of which that is not known. `count`: how often
    it was seen, at least. `lines`: where the training thread stands meanwhile. `rank`: whose run it is.
    `steps`: how many steps ended.
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
    rank: int
    steps: int
    usual_step_ns: int

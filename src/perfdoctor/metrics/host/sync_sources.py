"""Which blocking call made the device run dry, from which op, and from which line of the user's own code?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfdoctor.metrics.accounting.behind_idle import host_rows
from perfdoctor.metrics.accounting.longest import Moment
from perfdoctor.metrics.accounting.queued import blocking_rows
from perfdoctor.metrics.host.own_code import own_functions
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import nested
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import host_marks
from perfdoctor.model.timeline import Frame, Ints, Mask
from perfdoctor.vocabulary.names import torch as torch_names


class Syncs(Struct, frozen=True):
    """The blocking calls behind the idle of `host_sync`: `idle_ns` of each; `op` and `line` are rows, -1 for none."""

    calls: Frame
    idle_ns: Nanoseconds
    ops: Frame
    op: Ints
    lines: Frame
    line: Ints

    @property
    def total_ns(self) -> int:
        """The idle behind all of these calls."""
        return int(self.idle_ns.sum())

    def of(self, rows: Mask) -> Syncs:
        """These calls alone."""
        return replace(
            self, calls=self.calls.take(rows), idle_ns=self.idle_ns[rows], op=self.op[rows], line=self.line[rows]
        )

    def sources(self) -> list[tuple[str, str, str, int, int]]:
        """(call, op, line, how often, idle in ns) of the calls, the largest idle first."""
        found: dict[tuple[str, str, str], list[int]] = {}
        for index in range(len(self.calls)):  # one a sync that made the device run dry
            key = (self.calls.name[index], _name(self.ops, self.op[index]), _name(self.lines, self.line[index]))
            entry = found.setdefault(key, [0, 0])
            entry[0] += 1
            entry[1] += int(self.idle_ns[index])
        return sorted(((*key, n, ns) for key, (n, ns) in found.items()), key=lambda row: (-row[4], row[:3]))

    def longest(self, place: Place) -> list[Moment]:
        """The call of a place behind which the device was idle longest, with that idle, as a list of one."""
        if not self.idle_ns.any():
            return []
        at = int(np.argmax(self.idle_ns))
        begin, end = int(self.calls.start_ns[at]), int(self.calls.end_ns[at])
        idle = place.idle_causes["host_sync"]
        following = int(np.searchsorted(idle.ends, begin, side="right"))
        if following < len(idle) and idle.starts[following] <= end:
            end = max(end, int(idle.ends[following]))
        return [(place.rank, begin, end)]


def _name(rows: Frame, index: int) -> str:
    return rows.name[int(index)] if index >= 0 else ""


@once_per_place
def syncs(place: Place) -> Syncs:
    """The place's blocking calls; a stretch of idle behind them belongs to the last one made before it."""
    calls = place.timeline.calls.take(blocking_rows(place.host, place.work))
    idle = place.idle_causes["host_sync"]
    last = np.searchsorted(calls.start_ns, idle.starts, side="right") - 1
    last = np.where(last < 0, np.searchsorted(calls.start_ns, idle.ends, side="right") - 1, last)
    idle_ns = np.zeros(len(calls), dtype=np.int64)
    np.add.at(idle_ns, last[last >= 0], idle.durations_ns[last >= 0])
    calls, idle_ns = calls.take(idle_ns > 0), idle_ns[idle_ns > 0]
    op, line = nested(host_rows(place, ("ops",))), own_functions(place.timeline, place.rank)
    at = calls.start_ns, calls["process"], calls["thread"]
    return Syncs(calls, idle_ns, op.rows, op.innermost(*at), line.rows, line.innermost(*at))


def around_update(place: Place) -> Intervals:
    """When the host was in an optimizer's step, in clipping, or between a scaler's check of gradients and that step."""
    steps = host_rows(place, ("ops", "ranges")).named(torch_names.OPTIMIZER_STEP)
    functions = host_rows(place, ("functions",)).named(torch_names.UPDATE_FUNCTION)
    checks = host_rows(place, ("ops",)).named(torch_names.UNSCALES)
    found = steps.intervals | functions.intervals
    if not len(checks) or not len(steps):
        return found
    following = np.searchsorted(steps.start_ns, checks.start_ns)
    has = following < len(steps)
    until = steps.start_ns[np.minimum(following, len(steps) - 1)]
    # A step that the scaler skips has no update: then the next update belongs to another step.
    marks = host_marks(place.timeline, place.rank)
    begins = np.empty(0, np.int64) if marks is None else marks.starts
    same = np.searchsorted(begins, checks.start_ns, side="right") == np.searchsorted(begins, until, side="right")
    return found | Intervals.of(checks.start_ns[has & same], until[has & same])


def waits_within(run: Run, stretches: Callable[[Place], Intervals]) -> Mask:
    """One bool a row of `timeline.calls`: the blocking calls that begin in these stretches of their place.

    A read may wait in two calls, the copy and the sync behind it: a fix takes both away.
    """
    calls = run.timeline.calls
    found = np.zeros(len(calls), dtype=bool)
    for place in run.places:
        rows = blocking_rows(place.host, place.work)
        found[rows[stretches(place).covers(calls.start_ns[rows])]] = True
    return found

"""Where on the host was work of a device launched: by which call, when, on which thread, inside which op or range?"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import once_per_place
from perfdoctor.model.columns import UNKNOWN, Ints, Mask, Whole
from perfdoctor.model.host_rows import Nested, nested_rows, when_open
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame


class Launches(Struct, frozen=True, dict=True):
    """The launches of some rows of a place's DeviceWork, one element each. UNKNOWN stands where none was recorded."""

    place: Place
    rows: Ints

    @cached_property
    def call(self) -> Ints:
        """The row of `timeline.calls`."""
        return self.place.work.launch[self.rows]

    @cached_property
    def known(self) -> Mask:
        known: Mask = self.call != UNKNOWN
        return known

    @cached_property
    def at_ns(self) -> Nanoseconds:
        """When the call began."""
        return self._of_call("start_ns")

    @property
    def process(self) -> Ints:
        return self._of_call("process")

    @property
    def thread(self) -> Ints:
        return self._of_call("thread")

    def _of_call(self, column: str) -> Ints:
        values = self.place.timeline.calls[column]
        return np.where(self.known, values[np.maximum(self.call, 0)], UNKNOWN) if values.size else self.call

    def within(self, spans: Intervals) -> Mask:
        """One bool a launch: was it made in one of these stretches of time?"""
        inside: Mask = self.known & (spans.overlap_ns(self.at_ns, self.at_ns + 1) > 0)
        return inside

    def while_open(self, pattern: re.Pattern[str], *signals: str) -> Mask:
        """One bool a launch: was a row of these signals with such a name open then, on any thread of the rank?"""
        return self.within(when_open(self.place.timeline, self.place.rank, pattern, *signals))

    def inside(self, rows: Nested) -> Ints:
        """The innermost of these rows around each launch, on the thread that made it."""
        return np.where(self.known, rows.innermost(self.at_ns, self.process, self.thread), UNKNOWN)

    def enclosing(self, signal: str) -> Ints:
        """Innermost row of the signal around each launch, as a row of the timeline's frame."""
        inner, numbers = _innermost(self.place, signal)[self.rows], _nested(self.place, signal).numbers
        return _numbered(numbers, inner)

    def outermost(self, signal: str, chosen: Mask | None = None) -> Ints:
        """The outermost row of a signal around each launch, as a row of the timeline's frame.

        `chosen`: one bool a row of that frame; of these rows only.
        """
        rows = _nested(self.place, signal)
        inner = _innermost(self.place, signal)[self.rows]
        outer = rows.outermost if chosen is None else rows.outermost_of(chosen[rows.numbers])
        return _numbered(rows.numbers, _numbered(outer, inner))

    def inside_of(self, signal: str, chosen: Mask) -> Mask:
        """One bool a launch: did any of the chosen rows of a signal lie around it?"""
        inside: Mask = self.outermost(signal, chosen) != UNKNOWN
        return inside


def _numbered(numbers: Whole, rows: Ints) -> Ints:
    """The element of `numbers` for each of `rows`; UNKNOWN stays UNKNOWN."""
    if not numbers.size:
        return rows
    found: Ints = np.where(rows != UNKNOWN, numbers[rows], UNKNOWN).astype(np.int64, copy=False)
    return found


def _nested(place: Place, signal: str) -> Nested:
    return nested_rows(place.timeline, place.rank, signal)


@once_per_place
def _innermost(place: Place, signal: str) -> Ints:
    """Innermost row of the signal around the launch of each row of DeviceWork."""
    return launches(place).inside(_nested(place, signal))


@once_per_place
def launches(place: Place) -> Launches:
    """The launches of all work of the device, row by row of DeviceWork."""
    return Launches(place, np.arange(len(place.work)))


@once_per_place
def launches_of(place: Place, signal: str) -> Launches:
    """The launches of the rows of `place.own(signal)`: its kernels, copies or collectives inside the window."""
    return Launches(place, place.work.rows[signal][place.in_window(signal)])


@once_per_place
def recorded_launches(place: Place, signal: str) -> Launches:
    """The launches of the rows of `place.recorded(signal)`, which is the whole recording."""
    return Launches(place, place.work.rows[signal])


def launched_in(place: Place, *names: str, signal: str = "ops", of: str = "kernels") -> Mask:
    """Which kernels were launched inside an op, or a range, with one of these names?

    At any depth, on the thread that launched it: a kernel of `aten::copy_` inside `aten::to` is in both.

    Args:
        place: The place.
        *names: The names.
        signal: What has these names: `"ops"` or `"ranges"`.
        of: What was launched: `"kernels"`, `"copies"` or `"collectives"`.

    Returns:
        One bool a row of `place.kernels` (or copies, collectives). False where the launch was not recorded: see
        `launch_known`.
    """
    return launches_of(place, of).inside_of(signal, place.timeline[signal].name.equals(*names))


def launch_known(place: Place, of: str = "kernels") -> Mask:
    """Of which kernels was the call recorded that launched them?

    Of the others nobody knows the op: launched before the recording began, by a CUDA graph, or calls were not recorded.

    Args:
        place: The place.
        of: What was launched: `"kernels"`, `"copies"` or `"collectives"`.

    Returns:
        One bool a row of `place.kernels` (or copies, collectives).
    """
    return launches_of(place, of).known


def first_kernels(place: Place, chosen: Mask) -> tuple[Ints, Frame, Nanoseconds]:
    """The outermost chosen ops that launched any of `place.kernels`: who launched what, and when its first one began.

    `chosen`: one bool a row of `timeline.ops`. Returns for each kernel its row in the frame of those ops, UNKNOWN for
    none; the frame; and for each op the start of the first of its kernels.
    """
    op = launches_of(place, "kernels").outermost("ops", chosen)
    known = op != UNKNOWN
    ops, row = np.unique(op[known], return_inverse=True)
    of_kernel = np.full(op.size, UNKNOWN, np.int64)
    of_kernel[known] = row
    first = np.full(ops.size, np.iinfo(np.int64).max)
    np.minimum.at(first, row, place.kernels.start_ns[known])
    return of_kernel, place.timeline.ops.take(ops), first

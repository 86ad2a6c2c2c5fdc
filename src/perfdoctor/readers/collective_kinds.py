"""Which collective does a communication kernel run, by the range in which it was launched?

PyTorch opens a range `nccl:all_to_all` around each call of the library. Kernel names are less exact: all-to-alls and
point-to-point messages share one kernel, newer libraries have one for everything (`ncclDevKernel_Generic`), and some
builds name every kernel after the first (`ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t` for an all-reduce).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdoctor.model.device_work import launch_rows
from perfdoctor.model.host_rows import nested
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Mask, Text
from perfdoctor.vocabulary.names.nccl import LIBRARY_RANGE, collective_kind


def range_at_launch(rows: Frame, calls: Frame, ranges: Frame) -> Ints:
    """The innermost range that was open when each row was launched, on the thread of its call; UNKNOWN if none."""
    call = launch_rows(rows, calls)
    of_call = calls.take(np.maximum(call, 0))
    opened = nested(ranges).innermost(of_call.start_ns, of_call["process"], of_call["thread"])
    return np.where(call != UNKNOWN, opened, UNKNOWN)


def kinds_as_launched(frames: Mapping[str, Frame], *, is_named: Mask | None = None) -> Text:
    """The kind of each row of `collectives` by its range; rows that are `is_named` or have no range keep theirs."""
    rows, calls = frames["collectives"], frames.get("calls")
    kinds = rows.text("kind")
    if calls is None or "ranges" not in frames or not len(calls):
        return kinds
    ranges = frames["ranges"]
    ranges = ranges.named(LIBRARY_RANGE).sorted()
    open_range = range_at_launch(rows, calls, ranges)
    kind_of_range = ranges.name.trimmed().mapped(collective_kind)
    known = open_range != UNKNOWN
    known &= ~is_named if is_named is not None else True
    if not known.any():
        return kinds
    known[known] = ~kind_of_range.take(open_range[known]).equals("other")
    both = Text.join([kinds, kind_of_range])
    of_range = np.where(known, both.codes[len(kinds) + np.maximum(open_range, 0)], both.codes[: len(kinds)])
    return Text(of_range.astype(np.int32), both.values)

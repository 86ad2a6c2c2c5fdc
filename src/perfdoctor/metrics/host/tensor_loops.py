"""Where does Python go through many tensors one by one, and launch the same few ops for each?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import outermost, when_open
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.vocabulary.names.torch import (
    COMPUTES,
    COPIES_INTO,
    NORM,
    OPTIMIZER_RANGE,
    PLAIN_ARITHMETIC,
    PROFILER_STEP,
    SCALE,
    UPDATE,
)

#: An update of one tensor takes at most so many ops: Adam's ten, and a few `to` and `detach`.
_LONGEST_BODY = 12
#: Between the norms and the scaling lie the sum of the norms and the factor: a dozen ops.
_OPS_TO_SCALING = 24


class TensorLoop(Struct, frozen=True):
    """One loop on one thread: `turns` times the ops `names`, on the host from `start_ns` to `end_ns`."""

    start_ns: int
    end_ns: int
    turns: int
    names: tuple[str, ...]
    is_clipping: bool


@once_per_place
def tensor_loops(place: Place, fewest_turns: int) -> tuple[TensorLoop, ...]:
    """The loops over gradients (clipping) and those that update tensors in place, outside the optimizer's step."""
    rows = place.timeline.ops.of(rank=place.rank)
    inner = outermost(rows.take(~rows.name.matches(OPTIMIZER_RANGE) & ~rows.name.matches(PROFILER_STEP)))
    updating = when_open(place.timeline, place.rank, OPTIMIZER_RANGE, "ranges", "ops")
    inner = inner.take(updating.overlap_ns(inner.start_ns, inner.end_ns) == 0)
    found: list[TensorLoop] = []
    for thread in np.unique(inner["thread"]).tolist():
        ops = inner.of(thread=thread)
        names = list(ops.name.values)
        clipped_until = -1
        for first, last, body in _repeats(ops.name.codes, fewest_turns):
            within = tuple(dict.fromkeys(names[code] for code in ops.name.codes[first : first + body]))
            if not all(PLAIN_ARITHMETIC.search(name) or UPDATE.search(name) or NORM.search(name) for name in within):
                continue
            norms = any(NORM.search(name) for name in within)
            scaling = first <= clipped_until and any(SCALE.search(name) for name in within)
            if norms:
                clipped_until = last + (last - first) + _OPS_TO_SCALING  # each norm is moved to one device first
            computes, copies, updates = (
                any(pattern.search(name) for name in within) for pattern in (COMPUTES, COPIES_INTO, UPDATE)
            )  # a tensor is changed in place, or a value is computed and copied there
            if norms or scaling or updates or (computes and copies):
                start, end = int(ops.start_ns[first]), int(ops.end_ns[last - 1])
                found.append(TensorLoop(start, end, (last - first) // body, within, norms or scaling))
    return tuple(found)


def _repeats(codes: np.ndarray[tuple[int], np.dtype[np.int32]], fewest_turns: int) -> list[tuple[int, int, int]]:
    """Stretches `[first, last)` in which the same `body` ops come again and again; the shortest body counts."""
    taken = np.zeros(codes.size, dtype=bool)
    found = []
    for body in range(1, _LONGEST_BODY + 1):
        if codes.size <= body:
            break
        same = (codes[body:] == codes[:-body]) & ~taken[body:] & ~taken[:-body]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        for first, until in edges.reshape(-1, 2).tolist():
            last = until + body
            if (last - first) // body >= fewest_turns:
                taken[first:last] = True
                found.append((first, last, body))
    return sorted(found)


def idle_behind(place: Place, loops: Sequence[TensorLoop]) -> Intervals:
    """When the device was idle because the host was still going through these loops."""
    return spans_of(loops) & place.idle_causes["launch_bound"]


def spans_of(loops: Sequence[TensorLoop]) -> Intervals:
    """When the host was in any of these loops."""
    return Intervals.of([loop.start_ns for loop in loops], [loop.end_ns for loop in loops])


def inside(place: Place, loops: Sequence[TensorLoop]) -> list[TensorLoop]:
    """The loops that touch the place's window."""
    return [loop for loop in loops if place.window.overlap_ns([loop.start_ns], [loop.end_ns])[0] > 0]

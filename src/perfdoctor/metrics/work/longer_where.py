"""Inside which module, range or function does one rank compute longer than ranks that do the same?

What is slow as a whole (a device with lower clocks) is longer everywhere alike, and then no place is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from perfdoctor.metrics.host.own_code import own_functions
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.host_rows import Nested, nested_rows
from perfdoctor.model.launches import launches_of
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Floats, Ints
from perfdoctor.records.findings import Rows
from perfdoctor.vocabulary.names import torch as torch_names

#: The others differ little: so many in the middle show what is usual, of however many.
_COMPARED = 3
#: Inside it is longer by this multiple of what it is longer by outside: twice is no noise of one device.
_TIMES_OUTSIDE = 2.0
_MOST_ROWS = 5
_SIGNALS = ("modules", "ranges", "functions")


def longer_within(late: Place, others: Sequence[Place], least_share: float) -> str:
    """The innermost module, else range, else own function with at least this share of what the late one computes
    longer; "" where there is none, or it computes longer everywhere.
    """
    peers = _usual(others)
    if not peers:
        return ""
    usual_ns = float(np.median([_compute_ns(place) for place in peers]))
    more_ns = _compute_ns(late) - usual_ns
    for signal in _SIGNALS:
        own, usual = _by_name(late, signal), [_by_name(place, signal) for place in peers]
        found = []
        for name, ns in own.items():
            theirs = float(np.median([each.get(name, 0.0) for each in usual]))
            outside, theirs_outside = _compute_ns(late) - ns, usual_ns - theirs
            is_most = ns - theirs >= least_share * more_ns > 0
            if is_most and _is_longer(ns, theirs) >= _TIMES_OUTSIDE * max(_is_longer(outside, theirs_outside), 0.0):
                found.append((ns, name))
        if found:
            return min(found)[1]
    return ""


def longer_kernels(late: Place, others: Sequence[Place]) -> tuple[Rows, ...]:
    """The kernels that take longer on the late one, those that most of it is first; () where none does."""
    peers = _usual(others)
    if not peers:
        return ()
    own, usual = _kernels_by_name(late), [_kernels_by_name(place) for place in peers]
    more = [(ns - float(np.median([each.get(name, 0.0) for each in usual])), name) for name, ns in own.items()]
    longer = sorted((each for each in more if each[0] > 0), reverse=True)[:_MOST_ROWS]
    if not longer:
        return ()
    rows = tuple((name, own[name], own[name] - ns) for ns, name in longer)
    columns = ("kernel", f"rank {late.rank}, a step", "the middle one of others, a step")
    return (Rows(f"Kernels that take longer on rank {late.rank}", columns, ("text", "ns", "ns"), rows),)


@once_per_place
def _kernels_by_name(place: Place) -> Mapping[str, float]:
    """Ns of a step in the kernels of each name."""
    return {name: ns / place.units for name, _, ns in place.kernels.name.sums(place.kernel_ns)}


def _usual(others: Sequence[Place]) -> Sequence[Place]:
    """A few of the others, whose compute is in the middle."""
    middle = sorted(others, key=_compute_ns)
    first = max((len(middle) - _COMPARED) // 2, 0)
    return middle[first : first + _COMPARED]


def _is_longer(ns: float, usual_ns: float) -> float:
    """By which share of the usual it is longer; what the others hardly do is longer without end."""
    return ns / usual_ns - 1 if usual_ns > 0 else np.inf


def _compute_ns(place: Place) -> float:
    """Ns of a step in kernels, without a GPU in ops."""
    return (float(place.kernel_ns.sum()) if place.device is not None else float(place.compute.total_ns)) / place.units


@once_per_place
def _by_name(place: Place, signal: str) -> Mapping[str, float]:
    """What is computed inside the rows of each name, those inside them included, in ns a step."""
    of_rank = place.timeline, place.rank
    rows = own_functions(*of_rank) if signal == "functions" else nested_rows(*of_rank, signal)
    if not len(rows.rows):
        return {}
    names = rows.rows.name
    again = rows.again(names.codes.astype(np.int64))
    total = np.zeros(len(names.values))
    for row, ns in _computed_in(place, rows):
        kept = ~again[row]
        np.add.at(total, names.codes[row[kept]], ns[kept])
    return {
        names.values[code]: float(total[code]) / place.units
        for code in np.flatnonzero(total).tolist()
        if not torch_names.PROFILER_STEP.search(names.values[code])
    }


def _computed_in(place: Place, rows: Nested) -> Iterator[tuple[Ints, Floats]]:
    """Rows, and what was computed in each: the rows around each kernel's launch from the innermost outwards."""
    if place.device is None:
        each = np.arange(len(rows.rows))
        yield each, place.compute.overlap_ns(rows.rows.start_ns, rows.rows.end_ns).astype(np.float64)
        return
    row, ns = launches_of(place, "kernels").inside(rows), place.kernel_ns.astype(np.float64)
    while (known := row != UNKNOWN).any():
        row, ns = row[known], ns[known]
        yield row, ns
        row = rows.parent[row].astype(np.int64)

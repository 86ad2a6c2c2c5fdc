"""When did the host do what comes once: load a kernel at its first launch, or capture a graph?

A kernel's code is loaded when it is first launched (CUDA lazy loading, HIP code objects, libraries of their own): that
launch takes as long as a thousand others. Between the begin and the end of a capture, launches run nothing.
"""

from __future__ import annotations

import re

import numpy as np

from perfdoctor.model.device_work import launching_calls
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import system as system_names

#: A launch takes 2 to 10 µs. The longest that load nothing stand in a full queue, where the device is busy; loading
#: takes from a fifth of a millisecond on. Both must hold: slow hosts and recorders with stacks lengthen all launches.
_LEAST_NS = 200_000
_TIMES_THE_USUAL = 50
#: No launch takes this long, a thousand times the usual and ten milliseconds, which is more than the system takes a
#: thread off its processor for: the driver loads something, also where a kernel of that name ran before (another
#: variant of it, a library's handle, a lock of a thread that loads).
_SURELY_NS = 10_000_000
_TIMES_FOR_SURE = 1_000


def first_uses(timeline: Timeline, rank: int) -> Intervals:
    """In which launches of this rank something was loaded.

    The first of a kernel's name that is far longer than launches are, and any that takes longer than a launch can.
    """
    launches = _launches(timeline, rank)
    if not launches.size:
        return Intervals.empty()
    calls, first = timeline.calls, _first_of_each_kernel(timeline, rank)
    took_ns = calls.duration_ns
    usual_ns = float(np.median(took_ns[launches]))
    loading = first[took_ns[first] >= max(_LEAST_NS, _TIMES_THE_USUAL * usual_ns)]
    surely = launches[took_ns[launches] >= max(_SURELY_NS, _TIMES_FOR_SURE * usual_ns)]
    rows = np.union1d(loading, surely)
    return Intervals.of(calls.start_ns[rows], calls.end_ns[rows])


def _launches(timeline: Timeline, rank: int) -> Ints:
    """Rows of the calls that launched this rank's kernels."""
    own = timeline.kernels["rank"] == rank
    calls = launching_calls(timeline, "kernels")[own]
    rows: Ints = np.unique(calls[calls != UNKNOWN])
    return rows


def _first_of_each_kernel(timeline: Timeline, rank: int) -> Ints:
    """Rows of the calls that launched each kernel for the first time in its process."""
    kernels, calls = timeline.kernels, launching_calls(timeline, "kernels")
    own = np.flatnonzero((kernels["rank"] == rank) & (calls != UNKNOWN))
    own = own[np.argsort(calls[own], kind="stable")]
    keys = np.stack((kernels["process"][own], kernels.name.codes[own]))
    _, place = np.unique(keys, axis=1, return_index=True)
    rows: Ints = np.unique(calls[own[place]])
    return rows


def captures(calls: Frame) -> Intervals:
    """From the begin of each capture of a graph to its end, thread by thread; one that does not end is none."""
    return _between(calls, *cuda_names.CAPTURE)


def awaited_children(os_calls: Frame, calls: Frame) -> Intervals:
    """From the start of another process, or of the pipe to it, until it was waited for, thread by thread.

    Only where the thread called nothing of CUDA meanwhile: a loader's workers are started and awaited too, and between
    lies the training.
    """
    spans = _between(os_calls, *system_names.CHILD)
    alone = np.searchsorted(calls.start_ns, spans.ends) == np.searchsorted(calls.start_ns, spans.starts)
    return Intervals.of(spans.starts[alone], spans.ends[alone])


def _between(calls: Frame, begin: re.Pattern[str], end: re.Pattern[str]) -> Intervals:
    """To each call that ends it, from the last one before that began it, on the same thread."""
    begins, ends = (np.flatnonzero(calls.name.matches(pattern)) for pattern in (begin, end))
    found = Intervals.empty()
    for thread in np.unique(calls["thread"][ends]).tolist():
        own, over = (rows[calls["thread"][rows] == thread] for rows in (begins, ends))
        place = np.searchsorted(calls.start_ns[own], calls.start_ns[over]) - 1
        begun = place >= 0
        found = found | Intervals.of(calls.start_ns[own[place[begun]]], calls.end_ns[over[begun]])
    return found

"""When did the host do work that comes once: initialise CUDA, load a kernel at its first launch, or capture a graph?

A kernel's code is loaded when it is first launched (CUDA lazy loading, HIP code objects, libraries of their own): that
launch takes as long as a thousand others. An op that opens a library (cuDNN, cuBLAS) does so before it calls anything,
when it first runs. Between the begin and the end of a capture, launches run nothing.
"""

from __future__ import annotations

import re

import numpy as np

from perfdoctor.metrics.grouping import combined
from perfdoctor.model.columns import distinct
from perfdoctor.model.device_work import launching_calls
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import UNKNOWN, Frame, Ints, Timeline
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import system as system_names

#: A launch takes 2 to 10 µs. The longest that load nothing stand in a full queue, where the device is busy; loading
#: takes from a fifth of a millisecond on. Both must hold: slow hosts and recorders with stacks lengthen all launches.
_LEAST_NS = 200_000
_TIMES_THE_USUAL = 50
#: Where no kernel is launched twice all launches may load, and none shows how long they usually take.
_MOST_USUAL_NS = 10_000
#: No launch takes this long, a thousand times the usual and ten milliseconds, which is more than the system takes a
#: thread off its processor for: the driver loads something, also where a kernel of that name ran before (another
#: variant of it, a library's handle, a lock of a thread that loads).
_SURELY_NS = 10_000_000
_TIMES_FOR_SURE = 1_000


def first_uses(timeline: Timeline, rank: int) -> Intervals:
    """The launches and calls of this rank in which code was loaded.

    These are a kernel's first launch if it is far longer than usual, any launch that takes longer than launches can,
    and the first call of another name that does, unless it waits for the device, copies or allocates.
    """
    calls, kernels, call = timeline.calls, timeline.kernels, launching_calls(timeline, "kernels")
    own = np.flatnonzero((kernels["rank"] == rank) & (call != UNKNOWN))
    if not own.size:
        return Intervals.empty()
    launches = distinct(call[own])
    own = own[np.argsort(call[own], kind="stable")]
    _, at_first = combined(kernels["process"][own], kernels.name.codes[own])
    first = distinct(call[own[at_first]])  # the calls that launched each kernel for the first time in its process
    took_ns = calls.duration_ns
    usual_ns = _usual_ns(took_ns, launches, first)
    loading = first[took_ns[first] >= max(_LEAST_NS, _TIMES_THE_USUAL * usual_ns)]
    surely = launches[took_ns[launches] >= max(_SURELY_NS, _TIMES_FOR_SURE * usual_ns)]
    # The first call of a name in its process, among calls that have nothing to wait for.
    others = np.flatnonzero((calls["rank"] == rank) & ~calls.name.matches(cuda_names.TAKES_ITS_TIME))
    others = others[combined(calls["process"][others], calls.name.codes[others])[1]]
    others = others[took_ns[others] >= max(_SURELY_NS, _TIMES_FOR_SURE * usual_ns)]
    rows = np.concatenate((loading, surely, others))
    return Intervals.of(calls.start_ns[rows], calls.end_ns[rows])


def _usual_ns(took_ns: Ints, launches: Ints, first: Ints) -> float:
    """The median ns of a launch whose kernel had been launched before; rows of the calls: `launches`, `first`."""
    is_again = np.zeros(took_ns.size, dtype=bool)
    is_again[launches], is_again[first] = True, False
    again = np.flatnonzero(is_again)
    if again.size:
        return float(np.median(took_ns[again]))
    return min(float(np.median(took_ns[launches])), _MOST_USUAL_NS)


def first_ops(ops: Frame) -> Intervals:
    """The first runs of ops that took far longer than its later runs: what they did beside launching comes once."""
    took_ns, codes = ops.duration_ns, ops.name.codes
    _, first = combined(codes)  # rows are in the order of their starts
    long = [
        row
        for row in first[took_ns[first] >= _SURELY_NS].tolist()
        if (later := took_ns[row + 1 :][codes[row + 1 :] == codes[row]]).size
        and took_ns[row] >= _TIMES_THE_USUAL * np.median(later)
    ]
    return Intervals.of(ops.start_ns[long], ops.end_ns[long])


def initialisation(calls: Frame) -> Intervals:
    """The long calls of a process that allocate or free before its first launch: they initialise CUDA or HIP.

    No call of its own does that: the first one, often `cudaFree(0)`, makes the context and loads the driver's modules.
    With nothing on the device to wait for, no allocation takes ten milliseconds.
    """
    never = np.iinfo(np.int64).max
    launching = calls.named(cuda_names.LAUNCH)
    long = calls.take(calls.name.matches(cuda_names.ALLOCATOR_CALL) & (calls.duration_ns >= _SURELY_NS))
    found = Intervals.empty()
    for process in np.unique(long["process"]).tolist():
        own, starts = long.of(process=process), launching.of(process=process).start_ns
        early = own.start_ns < (starts.min() if starts.size else never)
        found = found | Intervals.of(own.start_ns[early], own.end_ns[early])
    return found


def captures(calls: Frame) -> Intervals:
    """The time from the begin of each capture of a graph to its end, by thread; one without an end is left out."""
    return _between(calls, *cuda_names.CAPTURE)


def awaited_children(os_calls: Frame, calls: Frame) -> Intervals:
    """The time from the start of another process, or of the pipe to it, until it was waited for, thread by thread.

    It counts only where the thread called nothing of CUDA meanwhile: a loader's workers are started and awaited too,
    and between lies the training.
    """
    spans = _between(os_calls, *system_names.CHILD)
    alone = np.searchsorted(calls.start_ns, spans.ends) == np.searchsorted(calls.start_ns, spans.starts)
    return Intervals.of(spans.starts[alone], spans.ends[alone])


def compilations(os_calls: Frame, calls: Frame) -> Intervals:
    """The time in which other processes compiled: from the CUDA call before them to the one that loads their result.

    A just-in-time compiler (Triton, Inductor, Numba) reads sources, looks for what it made before, starts ptxas or a C
    compiler, waits for it, and loads the result; on that thread nothing else of CUDA is called from begin to end.
    """
    children, found = awaited_children(os_calls, calls), Intervals.empty()
    loads = calls.name.matches(cuda_names.MODULE_LOADING_CALL)
    for thread in np.unique(calls["thread"][loads]).tolist():
        own = np.flatnonzero(calls["thread"] == thread)
        since, until = np.maximum.accumulate(calls.end_ns[own])[:-1], calls.start_ns[own[1:]]
        gaps = Intervals.of(since[loads[own[1:]]], until[loads[own[1:]]])
        holds = children.overlap_ns(gaps.starts, gaps.ends) > 0
        found = found | Intervals.of(gaps.starts[holds], gaps.ends[holds])
    return found


def _between(calls: Frame, begin: re.Pattern[str], end: re.Pattern[str]) -> Intervals:
    """The time up to each call named `end` from the last call named `begin` before it on the same thread."""
    begins, ends = (np.flatnonzero(calls.name.matches(pattern)) for pattern in (begin, end))
    found = Intervals.empty()
    for thread in np.unique(calls["thread"][ends]).tolist():
        own, over = (rows[calls["thread"][rows] == thread] for rows in (begins, ends))
        place = np.searchsorted(calls.start_ns[own], calls.start_ns[over]) - 1
        begun = place >= 0
        found = found | Intervals.of(calls.start_ns[own[place[begun]]], calls.end_ns[over[begun]])
    return found

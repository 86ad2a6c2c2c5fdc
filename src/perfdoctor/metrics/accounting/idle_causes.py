"""Why was the device idle? Each idle stretch is explained by what the host did that launches its work.

The work that ended the stretch was launched by some call. If that call came long before, the work was queued already
and the host is not to blame (`queue_latency`). Otherwise the host was late, and what its launching threads did from the
start of the stretch until that call is the cause: waiting for a batch, for the device, for memory, for a file,
launching other work (`launch_bound`), or running code that launches nothing (`host_work`). `PROOFS` says how each is
proven; what the recording cannot prove is `unknown`. The parts are cut with interval algebra, so they sum to the idle
time exactly.

```
device   ██████░░░░░░░░░░░░░░░░██████        idle [a, b)
host        ▓▓ sync ▓▓│ next batch │launch   launched at s
                a     └ input_wait ┘s  b
```
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct, field

from perfdoctor.metrics.accounting.queued import (
    LONGEST_LAUNCH_NS,
    before_first_call,
    blocking_copies,
    blocking_rows,
    graphs_in_flight,
    launch_latency_ns,
)
from perfdoctor.model.clocks import CLOCK_SLACK_NS
from perfdoctor.model.columns import firsts, numbered
from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.intervals import Intervals, Nanoseconds
from perfdoctor.model.place import HostActivity
from perfdoctor.model.timeline import UNKNOWN, Frame, Mask
from perfdoctor.vocabulary.names import cuda as cuda_names
from perfdoctor.vocabulary.names import loaders as loader_names
from perfdoctor.vocabulary.names import system as system_names
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.parts import IDLE_CAUSES

#: Between two queued kernels lie microseconds; across streams and devices, tens. What is queued and still does not
#: start for a millisecond waits for something that was not recorded.
_LONGEST_QUEUE_LATENCY_NS = 1_000_000
#: Signals in which the driving threads are seen.
ON_HOST = ("calls", "ops", "ranges", "functions", "os_calls")
_RANGES_AND_OPS = ("ranges", "ops")
_FUNCTIONS = ("functions",)
_CALLS = ("calls",)


class Evidence(Struct, frozen=True):
    """What points to one cause or another, beside names; empty where nothing does.

    `once`: what comes once in a program (`HostActivity.once`, and what else of its start the recording shows).
    `blocked`: the host waits in a call for the device; `refill`: idle that began so. `launching`: it launches work, and
    enough of it is in view to know. `before_batch`: idle that a batch's copy ended, between two steps. `working`: in
    which part of the otherwise unexplained time the host is seen to run something.
    """

    host: HostActivity
    once: Intervals
    blocked: Intervals
    refill: Intervals
    launching: Intervals
    before_batch: Intervals
    working: Callable[[Intervals], Intervals]


class Proof(Struct, frozen=True):
    """A cause, and what proves it: rows of these signals with such a name, or else what `seen` finds in the evidence.

    `seen` also gets the idle time that no stronger proof has claimed.
    """

    cause: str
    names: Mapping[re.Pattern[str], tuple[str, ...]] = field(default_factory=dict)
    seen: Callable[[Evidence, Intervals], Intervals] | None = None

    def stretches(self, evidence: Evidence, rest: Intervals) -> Intervals:
        return self.seen(evidence, rest) if self.seen else evidence.host.explicit[self.cause]


#: The strongest first: what one claims, no later one does. GPUs and training threads without one are judged alike.
PROOFS: tuple[Proof, ...] = (
    Proof("input_wait", {loader_names.INPUT_WAIT: _RANGES_AND_OPS, loader_names.INPUT_WAIT_FUNCTION: _FUNCTIONS}),
    Proof(
        "garbage_collection",
        {system_names.GARBAGE_COLLECTION: _RANGES_AND_OPS, system_names.GARBAGE_COLLECTION_FUNCTION: _FUNCTIONS},
    ),
    Proof("storage", {torch_names.STORAGE: (*_RANGES_AND_OPS, *_FUNCTIONS)}),
    Proof(
        "compilation",
        {torch_names.COMPILATION: (*_RANGES_AND_OPS, *_FUNCTIONS), cuda_names.MODULE_LOADING_CALL: _CALLS},
    ),
    Proof("compilation", seen=lambda seen, _: seen.once),
    Proof(
        "peer_wait",
        {
            torch_names.PEER_WAIT: _RANGES_AND_OPS,
            torch_names.PEER_WAIT_FUNCTION: _FUNCTIONS,
            system_names.MPI_WAIT: _RANGES_AND_OPS,
        },
    ),
    Proof("allocator", {cuda_names.ALLOCATOR_CALL: _CALLS}),
    Proof("profiler", seen=lambda seen, _: seen.host.profiler),
    Proof("host_sync", seen=lambda seen, _: seen.blocked),
    # A sync drained the queue: until it is refilled, launching is a cost of that sync.
    Proof("host_sync", seen=lambda seen, _: seen.refill & seen.host.launching),
    Proof("launch_bound", seen=lambda seen, _: seen.launching),
    Proof("compilation", seen=lambda seen, _: seen.host.first_ops),
    Proof("storage", seen=lambda seen, _: seen.host.files),
    Proof("input_wait", seen=lambda seen, _: seen.before_batch - seen.host.visible),
    Proof("host_work", seen=lambda seen, rest: seen.working(rest)),
)
#: Causes that names prove, the strongest first.
NAMED_CAUSES = tuple(proof.cause for proof in PROOFS if proof.names)


def shared_out(idle: Intervals, evidence: Evidence) -> dict[str, Intervals]:
    """Each instant's cause: that of the first proof which holds for it, else `unknown`. Keys are IDLE_CAUSES."""
    causes, rest = dict.fromkeys(IDLE_CAUSES, Intervals.empty()), idle
    for proof in PROOFS:
        rest = _claim(causes, proof.cause, rest & proof.stretches(evidence, rest), rest)
    return {**causes, "unknown": rest}


class _Stretches(Struct, frozen=True):
    """Idle stretches `[start, end)` with the call that ended each: when it was made, when it returned.

    `was_launching`: the host stood in that call when the stretch began, and this is the first that it launched.
    `was_launched` is False where no call was recorded; then the other columns mean nothing. `nothing_follows`: the
    stretch ends where the host ended the step, and no work is known behind it.
    """

    start: Nanoseconds
    end: Nanoseconds
    launched_at: Nanoseconds
    returned_at: Nanoseconds
    was_launched: Mask
    ends_with_batch: Mask
    queued_before_recording: Mask
    nothing_follows: Mask
    was_launching: Mask
    call: Nanoseconds

    def when(self, chosen: Mask) -> Intervals:
        """The time of these stretches."""
        return _pieces(self.start, self.end, chosen)


def _stretches(idle: Intervals, work: DeviceWork, calls: Frame) -> _Stretches:
    row = np.minimum(np.searchsorted(work.start_ns, idle.ends, side="left"), max(len(work) - 1, 0))
    ends_here = work.start_ns[row] >= idle.ends
    call = np.where(ends_here, work.launch[row], UNKNOWN)
    was_launched = call != UNKNOWN
    safe = np.maximum(call, 0)
    none = np.zeros(len(idle), dtype=np.int64)
    return _Stretches(
        start=idle.starts,
        end=idle.ends,
        launched_at=calls.start_ns[safe] if len(calls) else none,
        returned_at=calls.end_ns[safe] if len(calls) else none,
        was_launched=was_launched,
        ends_with_batch=ends_here & work.is_h2d[row],
        queued_before_recording=ends_here & ~was_launched & before_first_call(work)[row],
        nothing_follows=~ends_here & (len(calls) > 0),
        was_launching=was_launched & _first_of_its_launch(work, calls)[row] & _open_at(calls, safe, idle.starts),
        call=call,
    )


def _open_at(calls: Frame, rows: Nanoseconds, moments: Nanoseconds) -> Mask:
    """One bool a row of calls: had it begun, and not ended, at its moment?"""
    if not len(calls):
        return np.zeros(rows.size, dtype=bool)
    return (calls.start_ns[rows] <= moments) & (calls.end_ns[rows] > moments)


def _first_of_its_launch(work: DeviceWork, calls: Frame) -> Mask:
    """One bool a row of work: is it the first of its call, and does that launch kernels, or take very long?

    A graph's later kernels follow from its first. A copy's call may return when it has staged the data.
    """
    first = firsts(numbered(work.launch)[1])
    found = np.zeros(len(work), dtype=bool)
    if len(calls):
        launch = work.launch[first]
        found[first] = calls.name.matches(cuda_names.LAUNCH)[launch] | (calls.duration_ns[launch] > LONGEST_LAUNCH_NS)
    found &= work.launch != UNKNOWN
    return found


def idle_causes(
    idle: Intervals, work: DeviceWork, calls: Frame, host: HostActivity, model_on_its_way: Intervals
) -> dict[str, Intervals]:
    """The instants of `idle` by cause: disjoint, together exactly `idle`. Keys are IDLE_CAUSES.

    `model_on_its_way`: when the model was copied to the device, which comes once.
    """
    causes = dict.fromkeys(IDLE_CAUSES, Intervals.empty())
    if not idle or not len(work):
        return {**causes, "unknown": idle}
    stretches = _stretches(idle, work, calls)
    patience = 3 * max(launch_latency_ns(work, calls), 1_000)
    waited = stretches.end - stretches.launched_at
    # Was the work that ended the stretch a copy that the host waits for (`.item()`, `.cpu()`)?
    by_blocking = np.isin(stretches.call, blocking_copies(work)) & stretches.was_launched
    late = stretches.nothing_follows | (stretches.was_launched & (stretches.launched_at > stretches.start))
    # Work is queued once its launch has returned: what that takes itself, to load a kernel for one, is the host's.
    in_launch = stretches.was_launching & ~late & ~by_blocking & (waited > patience)
    late |= in_launch
    queued = (stretches.was_launched & ~late & (waited > patience)) | stretches.queued_before_recording
    prompt = stretches.was_launched & ~late & (waited <= patience)

    # Where the host was late it is to blame until its call returned, or until the work should have started.
    returned = np.maximum(stretches.launched_at + patience, stretches.returned_at)
    to_blame = np.where(stretches.nothing_follows, stretches.end, np.minimum(stretches.end, returned))
    host_late = _pieces(stretches.start, to_blame, late)
    in_queue = stretches.when(queued) | _pieces(to_blame, stretches.end, late)
    causes["queue_latency"] = _pieces(in_queue.starts, in_queue.ends, in_queue.durations_ns < _LONGEST_QUEUE_LATENCY_NS)
    if host.graph_nodes_recorded:
        causes["queue_latency"] |= in_queue & graphs_in_flight(work, calls)
    # At the recording's edge, what ran before is not in it, nor what the queue waited for: that shows nothing.
    causes["queue_latency"] |= stretches.when(stretches.queued_before_recording)
    without_call = stretches.when(~stretches.was_launched & ~queued & ~stretches.nothing_follows)
    causes["unknown"] = without_call | (in_queue - causes["queue_latency"])

    blocking = calls.take(blocking_rows(host, work))
    blocking_copy = prompt & by_blocking
    causes["host_sync"] = stretches.when(blocking_copy)
    stood_in_launch = _pieces(stretches.start, to_blame, in_launch)
    evidence = _evidence(stretches, host, blocking, late, stood_in_launch, model_on_its_way)
    at_once = stretches.when(prompt & ~blocking_copy)
    # Of what the host did, calls alone may be recorded: while one is open, the host is launching.
    launching = at_once if host.in_view else at_once & host.in_calls
    causes["launch_bound"] |= launching
    causes["queue_latency"] |= at_once - launching
    for cause, pieces in shared_out(host_late, evidence).items():
        causes[cause] |= pieces
    # A loader's wait and the profiler's own flushes also show where no call says what launched the work.
    causes["unknown"] = _claim(causes, "input_wait", causes["unknown"] & host.explicit["input_wait"], causes["unknown"])
    causes["unknown"] = _claim(causes, "profiler", causes["unknown"] & host.profiler, causes["unknown"])
    return causes


def _pieces(starts: Nanoseconds, ends: Nanoseconds, mask: Mask) -> Intervals:
    return Intervals.of(starts[mask], ends[mask])


def _claim(causes: dict[str, Intervals], cause: str, part: Intervals, rest: Intervals) -> Intervals:
    """Give `part` to `cause`; returns what remains of `rest`."""
    causes[cause] = causes[cause] | part
    return rest - part


def _evidence(
    stretches: _Stretches, host: HostActivity, blocking: Frame, late: Mask, in_launch: Intervals, model: Intervals
) -> Evidence:
    """What points to the causes of the time in which the device waited for a `late` launch, or the host stood in it."""
    return Evidence(
        host=host,
        once=host.once | model,
        blocked=blocking.intervals,
        refill=stretches.when(_begun_under_sync(stretches, blocking) & late),
        # Calls alone do not distinguish launching from other code between two calls.
        launching=host.launching if host.in_view else in_launch,
        before_batch=stretches.when(stretches.ends_with_batch) & host.between_steps,
        working=lambda rest: _working(host, rest),
    )


def _working(host: HostActivity, rest: Intervals) -> Intervals:
    """When the host is seen to run something. Where ops were recorded, that is Python outside of them as well.

    Where calls of the operating system were: outside of these the threads wait for nothing, and run code of their own.
    """
    if host.ops_recorded:
        return rest
    return host.visible if host.in_system is None else host.visible | (rest - host.in_system)


def _begun_under_sync(stretches: _Stretches, blocking: Frame) -> Mask:
    """Did the device run dry while the host stood in a blocking call that had begun while it was busy?"""
    if not len(blocking):
        return np.zeros(stretches.start.size, dtype=bool)
    order = np.argsort(blocking.start_ns, kind="stable")
    starts, reach = blocking.start_ns[order], np.maximum.accumulate(blocking.end_ns[order])
    last = np.searchsorted(starts, stretches.start, side="left") - 1
    return (last >= 0) & (reach[np.maximum(last, 0)] + CLOCK_SLACK_NS >= stretches.start)

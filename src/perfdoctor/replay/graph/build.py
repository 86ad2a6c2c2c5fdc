"""What waits for what? Finds, for each node of a device's steps, the nodes that it came after.

Which event a wait waits for is not recorded. It is taken to be the work that ended last before the wait did.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.accounting.queued import launch_latency_ns
from perfdoctor.metrics.accounting.real_time import hidden_cost_ns
from perfdoctor.model.clocks import CLOCK_SLACK_NS
from perfdoctor.model.columns import distinct, occurring
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Ints, Mask
from perfdoctor.replay.graph.draft import DeviceDraft
from perfdoctor.replay.graph.graph import NOTHING, Graph
from perfdoctor.replay.graph.host_calls import host_calls, last_ended, predecessors
from perfdoctor.replay.graph.period import launched_in, period_of
from perfdoctor.vocabulary.names import cuda as cuda_names

#: What a call that waits takes by itself.
_OWN_OF_WAIT_NS = 10_000
#: Ends and starts of device work agree to a µs.
_DEVICE_SLACK_NS = 1_000
#: A launch that waits for room goes on when some work begins: which one it was is known to the time between two.
_ROOM_SLACK_NS = 60_000
#: A start this much later than stream and launch explain has another reason.
_UNEXPLAINED_NS = 2_000
#: Shorter waits for a batch, as a share of the step, do not show that the loader is slower than the training.
LEAST_LOADER_WAIT = 0.03
#: Enough for a hundred steps of a small model, and simulated in a tenth of a second.
MOST_WORK = 10_000
ALL_UNITS = 1 << 30
_NEVER = np.iinfo(np.int64).min


def graph_of(
    place: Place, most_work: int = MOST_WORK, *, paced: bool = True, most_units: int = ALL_UNITS
) -> Graph | None:
    """The graph of a place's steps; None where the recording has no steps or no device work in them.

    Of more work than `most_work` pieces, or of more than `most_units` steps, only the last steps are taken, at least
    one. `paced`: does the loader deliver at its own pace, beside the training? Else its work is the host's.
    """
    if place.device is None or not place.steps.used or not len(place.work):
        return None
    period = period_of(place, most_work, most_units)
    rows = launched_in(place, period)
    if not rows.size:
        return None
    draft = DeviceDraft(place, host_calls(place, period), rows, period)
    if len(draft.host):
        _calls(draft)
        if paced:
            _loader(draft)
    _streams(draft)
    _launches(draft)
    _other_streams(draft)
    if draft.waiting:
        _waits(draft)
    return draft.graph()


def _calls(draft: DeviceDraft) -> None:
    """Tie calls in program order: each comes after the last call of its thread, or of the thread that woke it."""
    host, nodes = draft.host, draft.host_nodes
    draft.start[nodes], draft.end[nodes] = host.start_ns, np.where(host.waits, host.start_ns, host.end_ns)
    draft.duration[nodes] = draft.end[nodes] - draft.start[nodes]
    source = predecessors(host)
    first = source < 0
    # The first call comes again when the next period's first one was made, behind what had ended by then.
    again = np.where(first, host.start_ns - host.start_ns[0] + host.again_ns, host.start_ns)
    behind = np.where(first, last_ended(host, again), source)
    lag = np.maximum(again - host.end_ns[behind], 0)
    # In a closed period nothing is known behind its end: what lies in front of the first call does in front of it.
    draft.gap_end[nodes] = np.where(first & draft.period.closed, host.start_ns, host.end_ns[behind] + lag)
    draft.gap_start[nodes] = draft.gap_end[nodes] - lag
    if (hidden := hidden_cost_ns(draft.place, draft.gap_start[nodes], draft.gap_end[nodes])).any():
        lag = np.maximum(lag - hidden, 0)
        inside = hidden_cost_ns(draft.place, draft.start[nodes], draft.end[nodes])
        draft.duration[nodes] = np.maximum(draft.duration[nodes] - inside, 0)
        draft.free[nodes] = True
    draft.tie(0, nodes, draft.over[behind], lag_ns=lag, before=first)


def _loader(draft: DeviceDraft) -> None:
    """Tie batches that the host waited for, and long enough, to the batch before."""
    place, period, nodes = draft.place, draft.period, draft.host_nodes
    draft.awaited = place.host.explicit["input_wait"] | place.idle_causes["input_wait"]
    waited = draft.awaited.overlap_ns(draft.gap_start[nodes], draft.gap_end[nodes])
    waits = np.flatnonzero(waited > LEAST_LOADER_WAIT * (period.duration_ns / period.units))
    if waits.size:
        draft.tie_batches(waits, waited[waits], period.launches_again_ns)


def _streams(draft: DeviceDraft) -> None:
    """Tie work to the work before it on its stream."""
    nodes, start, end = draft.work_nodes, draft.work_start, draft.work_end
    draft.start[nodes], draft.end[nodes], draft.duration[nodes] = start, end, end - start
    for stream in occurring(draft.streams):
        draft.tie_in_a_row(nodes[draft.streams == stream])


def _launches(draft: DeviceDraft) -> None:
    """Tie work to its call: it starts no sooner than the call began, plus the time that the launch took."""
    latency_ns = launch_latency_ns(draft.place.work, draft.place.timeline.calls)
    known = draft.launch >= 0
    nodes, call = draft.work_nodes[known], draft.launch[known]
    since = draft.start[nodes] - draft.host.start_ns[call]
    draft.tie(1, nodes, call, lag_ns=np.minimum(since, latency_ns) - draft.duration[call])


def _other_streams(draft: DeviceDraft) -> None:
    """Tie work to other streams if it starts later than stream and launch explain, or after a wait for an event."""
    nodes, start, end = draft.work_nodes, draft.work_start, draft.work_end
    explained = draft.explained(nodes)
    # Numbers wrap around: what nothing explains is not far behind it.
    asked = (explained == _NEVER) | (start - explained > _UNEXPLAINED_NS) | _behind_event(draft)
    last = _last_of_others(draft, start + _DEVICE_SLACK_NS, draft.streams, start)
    use = asked & (last >= 0)
    draft.tie(2, nodes[use], nodes[last[use]], lag_ns=np.minimum(start[use] - end[last[use]], 0))
    _behind_the_period_before(draft, asked & (last < 0) & (draft.launch < 0))


def _behind_the_period_before(draft: DeviceDraft, asked: Mask) -> None:
    """Tie work of unknown launch, before which nothing else ended, to what ended last in the repetition before.

    If it only came after its own stream, a stream that is used once would keep the recorded pace.
    """
    if not asked.any():
        return
    again = draft.work_start + draft.period.duration_ns
    last = _last_of_others(draft, again + _DEVICE_SLACK_NS, draft.streams, again)
    use = asked & (last >= 0)
    lag = np.minimum(again[use] - draft.work_end[last[use]], 0)
    draft.tie(2, draft.work_nodes[use], draft.work_nodes[last[use]], lag_ns=lag, before=True)


def _last_of_others(draft: DeviceDraft, moments: Ints, not_on: Ints, begun_before: Ints) -> Ints:
    """For each moment the work that ended last before it, on any stream but `not_on`; NOTHING where none had.

    `begun_before`: only work that began before this moment.
    """
    start, end, streams = draft.work_start, draft.work_end, draft.streams
    best, best_end = np.full(moments.size, NOTHING), np.full(moments.size, _NEVER)
    for stream in occurring(streams):
        own = np.flatnonzero(streams == stream)
        reach = np.maximum.accumulate(end[own])
        place = np.searchsorted(reach, moments, side="right") - 1
        found = own[np.maximum(place, 0)]
        better = (place >= 0) & (not_on != stream) & (reach[np.maximum(place, 0)] > best_end)
        better &= start[found] < begun_before
        best, best_end = np.where(better, found, best), np.where(better, reach[np.maximum(place, 0)], best_end)
    return best


def _behind_event(draft: DeviceDraft) -> Mask:
    """One bool a row of work: was a wait for an event put on the stream between its launch and the one before?"""
    waits = np.empty(0, np.int64)
    if len(draft.host):
        waits = np.flatnonzero(draft.host.named(draft.place.timeline.calls, cuda_names.STREAM_WAIT))
    launching = distinct(draft.launch[draft.launch >= 0])
    next_launch = np.searchsorted(launching, waits, side="right")
    return np.isin(draft.launch, launching[next_launch[next_launch < launching.size]])


def _waits(draft: DeviceDraft) -> None:
    """Tie the end of each waiting call to the work that ended last before it, among the work launched by then."""
    host, nodes = draft.host, draft.wait_nodes
    waits = np.flatnonzero(host.waits)
    begin, end = host.start_ns[waits], host.end_ns[waits]
    draft.start[nodes], draft.end[nodes] = end, end
    draft.tie(0, nodes, waits, lag_ns=np.minimum(end - begin, _OWN_OF_WAIT_NS))
    slack = np.where(host.for_room[waits], _ROOM_SLACK_NS, CLOCK_SLACK_NS)
    work, earlier, ended = _last_before(draft, end + slack)
    # The last copy that each call launched itself, for which it waits if at all.
    own = np.full(draft.hosts, NOTHING)
    copies = np.flatnonzero(np.isin(draft.rows, draft.place.work.rows["copies"]) & (draft.launch >= 0))
    own[draft.launch[copies]] = copies
    own = own[waits]
    copied = (own != NOTHING) & (draft.work_end[own] <= end + CLOCK_SLACK_NS) & (draft.work_end[own] >= begin)
    work, earlier = np.where(copied, own, work), earlier & ~copied
    ended = np.where(copied, draft.work_end[own], ended)
    # What had ended before did not hold the host up, but would if the host came sooner. For an event that had been
    # reached it is unknown which work it followed.
    held = ended >= begin - CLOCK_SLACK_NS
    of_event = host.named(draft.place.timeline.calls, cuda_names.WAITS_FOR_EVENT)[waits]
    known = earlier | ((draft.launch[work] <= waits) & (draft.work_start[work] < end))
    use = (work >= 0) & known & (held | ~of_event)
    lag = np.where(held, end - ended, 0)
    draft.tie(1, nodes[use], draft.work_nodes[work[use]], lag_ns=lag[use], before=earlier[use])
    _all_streams(draft, waits, np.where(use & ~earlier, work, NOTHING))
    # A queue may be longer than the period: a launch that waits for work from before it starts when others let it.
    draft.free[nodes[host.for_room[waits] & ~use]] = True


def _all_streams(draft: DeviceDraft, waits: Ints, last: Ints) -> None:
    """Tie waits for the whole device to a second stream as well, whose work is the last if `last` ends sooner."""
    host = draft.host
    whole = host.named(draft.place.timeline.calls, cuda_names.WAITS_FOR_DEVICE) | (host.rows == UNKNOWN)
    use = np.flatnonzero(whole[waits] & (last != NOTHING))
    end = host.end_ns[waits[use]]
    other = _last_of_others(draft, end, draft.streams[last[use]], end)
    known = (other != NOTHING) & (draft.launch[other] <= waits[use])
    draft.tie(2, draft.wait_nodes[use[known]], draft.work_nodes[other[known]])


def _last_before(draft: DeviceDraft, moments: Ints) -> tuple[Ints, Mask, Ints]:
    """For each moment the work that ended last before it, NOTHING where none; is it of the period before; its end.

    What was launched before the period is taken to be as far back as its counterpart is from the period's end.
    """
    ends = np.concatenate((draft.work_end, draft.work_end - draft.period.duration_ns))
    order = np.argsort(ends, kind="stable")
    place = np.searchsorted(ends[order], moments, side="right") - 1
    found = order[np.maximum(place, 0)]
    return np.where(place >= 0, found % draft.works, NOTHING), found >= draft.works, ends[found]

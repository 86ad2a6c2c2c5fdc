"""Would a rank that waits in collectives have been late anyway, because its own host is slow?

Where the hosts of all ranks are slower than their devices, the slowest of them sets the pace, and the others' devices
spend the time they are ahead in collectives. That looks like one late rank. Without its lateness, however, everybody
would wait for the next slow host. No more can be saved than the time that the hosts of waiting ranks have to spare:

```
spare = window - time in which the host is seen to be busy
                 from the launch of the window's first work to that of the first work behind it
```

What a host was ahead of its device when the window began helps as well, in the window: with it no device waited for
that host, however slow it is. It is no pace, though: sooner or later it is used up.
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.accounting.idle_causes import NAMED_CAUSES
from perfdoctor.metrics.accounting.queued import blocking_rows, full_queue_launches
from perfdoctor.metrics.accounting.real_time import hidden_cost_ns
from perfdoctor.metrics.communication.lateness import made_late_by
from perfdoctor.metrics.communication.skew import Skew, skew
from perfdoctor.model.cache import kept_in_summaries, once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.run import Job, Run
from perfdoctor.model.timeline import Frame
from perfdoctor.vocabulary.parts import PARTS

#: Named causes in which the host works, and in which it waits for other ranks.
_BUSY = tuple(cause for cause in NAMED_CAUSES if PARTS[cause].waits_for != "rank")
_AWAY = tuple(cause for cause in NAMED_CAUSES if cause not in _BUSY)
#: A pace is what repeats itself. Over one or two steps a host may have been held up once: another step would show it.
FEWEST_STEPS = 3


@kept_in_summaries
def spare_ns(place: Place) -> int | None:
    """How much sooner this rank's host could have launched the window's work; None where that is unknown.

    Time in which nothing was seen of the host counts as spare, unless framework ops were recorded.
    """
    return max(place.window_ns - busy_ns(place), 0) if _has_pace(place) else None


@kept_in_summaries
def sooner_ns(place: Place) -> int | None:
    """How much sooner this rank's device could have had the window's work: what its host has to spare, or was ahead.

    None where that is unknown.
    """
    if not _has_pace(place):
        return None
    ahead_ns = max(int(place.window.starts[0] - launching(place).starts[0]), 0)
    # As recorded: what recording cost a rank's host held up the others, too.
    return max(place.window_ns - busy_as_recorded_ns(place) + ahead_ns, 0)


def _has_pace(place: Place) -> bool:
    """Is the host in view for steps enough to know its pace?"""
    if place.steps.used < FEWEST_STEPS or not place.host.in_view or place.asked is not None:
        return False  # what a host has to spare in a range, the rest of the step may need
    return bool(launching(place))


def busy_ns(place: Place) -> int:
    """How long the host worked while it launched the window's work, in ns, without what recording cost it unseen."""
    busy = _busy(place) & launching(place)
    return max(busy.total_ns - int(hidden_cost_ns(place, busy.starts, busy.ends).sum()), 0)


def busy_as_recorded_ns(place: Place) -> int:
    """How long the host worked while it launched the window's work, in ns, with a recorder beside it."""
    return (_busy(place) & launching(place)).total_ns


def run_spare_ns(run: Run, *, of_window: bool = False) -> int | None:
    """`spare_ns` of a step of an average place: the most that faster work on the devices alone can win, in ns.

    `of_window`: also where too few steps are known for a pace: then of the window, as the host was in it.
    """
    known = []
    for place in run.places:
        spare = spare_ns(place)
        if of_window and place.host.in_view and place.asked is None and launching(place):
            spare = max(place.window_ns - busy_ns(place), 0)
        if spare is None:
            return None
        known.append(spare / place.units)
    return round(run.average(known)) if known else None


@once_per_place
def launching(place: Place) -> Intervals:
    """The time from the launch of the window's first work to that of the first work behind it, or of its own last."""
    work = place.work
    rows = np.flatnonzero(launches(place).known & (work.start_ns >= place.window.starts[0]))
    if not rows.size:
        return Intervals.empty()
    launched = launches(place).at_ns[rows]
    behind = launched[work.start_ns[rows] >= place.window.ends[-1]]
    return Intervals.single(int(launched[0]), int(behind[0] if behind.size else launched.max()))


def _busy(place: Place) -> Intervals:
    """When the host is seen to do something else than wait for the device or for other ranks."""
    host, waits = place.host, waiting_calls(place)
    # Where ops were recorded the thread is in view, and between them runs Python code.
    seen = place.window | launching(place) if host.ops_recorded else host.launching | host.visible
    busy = seen - waits.intervals
    for cause in _AWAY:
        busy = busy - host.explicit[cause]
    for cause in _BUSY:
        busy = busy | host.explicit[cause]
    return busy


def waiting_calls(place: Place) -> Frame:
    """Calls that wait for the device: by name, and launches into a queue that is full."""
    work, calls = place.work, place.timeline.calls
    return calls.take(np.union1d(blocking_rows(place.host, work), full_queue_launches(work, calls)))


def exposed_waiting_ns(place: JobPlace, matched: Skew) -> int:
    """How long this rank stood in collectives for a late one and computed nothing meanwhile, in the whole window."""
    number = matched.number(place.rank)
    spent = max(int(matched.spent_ns[number]), 1)
    return int(place.exposed_communication.total_ns * int(matched.waiting_ns[number]) / spent)


def paced_waiting_ns(run: Job[JobPlace], cause: str) -> int:
    """Waiting in collectives, a step and rank, that would be this cause of idle if no rank were late.

    It is what a rank waits beyond what its host could have been sooner, as far as that cause held the late ranks up.
    """
    job = run.job
    matched = skew(job)
    if matched is None or not matched.took_ns.sum():
        return 0
    places = [place for place in job.places if matched.has(place.rank) and len(place.collectives)]
    beyond = {}
    for place in places:
        sooner = sooner_ns(place)
        beyond[place.rank] = 0 if sooner is None else max(exposed_waiting_ns(place, matched) - sooner, 0)
    if not any(beyond.values()):
        return 0
    share = made_late_by(places, matched).get(cause, 0.0)
    return round(share * job.mean(lambda place: beyond.get(place.rank, 0)))

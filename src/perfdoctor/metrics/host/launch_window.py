"""When did the host launch the work of a place's window?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import launches
from perfdoctor.model.place import Place


def host_window(place: Place) -> Intervals:
    """When the host launched the work of this place's window: it may be several steps ahead of the device.

    From the launch of the first work in the window to the launch of the first work behind it, on the stream that has
    most work (batches are copied ahead on another one); the window itself where launches were not recorded. Of steps
    that are held to the host's bounds (`Steps.on_host`), these.
    """
    if place.asked is not None:
        return place.asked
    if place.steps.used and place.steps.host_bounds is not None:
        return Intervals.single(*place.steps.host_bounds[[0, -1]].tolist())
    if place.device is None or not place.window or not len(place.work):
        return place.window
    work, launched = place.work, launches(place)
    streams, counts = np.unique(work.stream, return_counts=True)
    main = np.flatnonzero(launched.known & (work.stream == streams[counts.argmax()]))
    edges = place.steps.even_bounds[[0, -1]] if place.steps.used else (place.window.starts[0], place.window.ends[-1])
    first, behind = np.searchsorted(work.start_ns[main], edges).tolist()
    if first >= behind:
        return place.window
    at_ns, call = launched.at_ns[main], launched.call[main]
    end = at_ns[behind] if behind < main.size else place.timeline.calls.end_ns[call[first:]].max()
    return Intervals.single(int(at_ns[first]), int(end)) or place.window

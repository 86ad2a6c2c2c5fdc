"""In which calls does the host wait for the device?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.host_activity import HostActivity
from perfdoctor.model.launches import DeviceWork
from perfdoctor.model.timeline import UNKNOWN, Frame, Mask

#: Makes one number of a thread and a moment.
_PRIME = 1_000_003


def blocking_calls(host: HostActivity, work: DeviceWork, calls: Frame) -> Frame:
    """Calls in which the host waits for the device: by name, and copies to pageable memory."""
    rows = work.launch[work.is_blocking_copy & (work.launch != UNKNOWN)]
    return Frame.join([host.blocking, calls.take(rows)]) if rows.size else host.blocking


def is_among(calls: Frame, some: Frame) -> Mask:
    """One bool a row of `calls`: is it one of `some`? A thread begins one call at a moment, or one inside another."""
    ours, theirs = (frame["thread"] * _PRIME + frame.start_ns for frame in (calls, some))
    found: Mask = np.isin(ours, theirs)
    return found

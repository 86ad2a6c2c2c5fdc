"""In which calls does the host wait for the device?"""

from __future__ import annotations

import numpy as np

from perfdoctor.model.device_work import DeviceWork
from perfdoctor.model.host_activity import HostActivity
from perfdoctor.model.timeline import UNKNOWN, Ints


def blocking_rows(host: HostActivity, work: DeviceWork) -> Ints:
    """Rows of `timeline.calls` in which the host waits for the device: by name, and copies to pageable memory."""
    copying = work.launch[work.is_blocking_copy & (work.launch != UNKNOWN)]
    rows: Ints = np.union1d(host.blocking, copying)
    return rows

"""How fast did the SMs run, as the GPU's own counters measured, and was it at work meanwhile?"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.counters.samples import usable
from perfdoctor.metrics.machine.gpu_samples import SampledGpu
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import UNKNOWN, Frame, Text
from perfdoctor.vocabulary.signals import SIGNALS


def clocks_of(place: Place) -> SampledGpu | None:
    """The samples of the counters in the window as those of a GPU's state: the clock, and the share of each sample in
    which a kernel ran; None where the clock was not sampled.
    """
    found = usable(place)
    if found is None or place.device is None or "clock_gpc_hz" not in found.recorded:
        return None
    most = place.info.clock_hz / 1e6 or np.nan
    inside = place.window.overlap_ns(found.starts, found.ends) > 0
    starts, size = found.starts[inside], int(inside.sum())
    numbers = (name for name, kind in SIGNALS["device_samples"].columns.items() if kind is float)
    return SampledGpu(place.device, Frame({
        **dict.fromkeys(numbers, np.full(size, np.nan)),
        "start_ns": starts, "end_ns": starts, "device": np.full(size, place.device),
        "name": Text.constant("counters", size), "is_on_clock": np.ones(size, np.bool_),
        "sm_clock_mhz": found.rows.floats("clock_gpc_hz")[inside] / 1e6,
        "max_sm_clock_mhz": np.full(size, most),
        "utilization_share": found.covered(place.compute | place.communication)[inside],
        "reasons": np.full(size, UNKNOWN),
    }))  # fmt: skip

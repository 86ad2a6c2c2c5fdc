"""Which counters of a place's GPU did DCGM sample beside the trace? As those of Nsight Systems, a thousandth as often.

A sample of DCGM is the mean from the one before to its own time (docs.nvidia.com/datacenter/dcgm, profiling metrics).
"""

from __future__ import annotations

import numpy as np

from perfdoctor.metrics.machine.gpu_samples import AT_WORK, SampledGpu, gpus
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Frame, Text
from perfdoctor.vocabulary.gpu_counters import COUNTERS
from perfdoctor.vocabulary.signals import SAMPLE_NUMBERS

#: What both have. The driver has a utilisation of its own, which is none of the counters.
_SHARED = tuple(column for column in COUNTERS if column in SAMPLE_NUMBERS)

#: A sample lasts no longer than this many usual ones: where some are missing nothing is known.
_HOLE = 2


def dcgm_rows(place: Place) -> tuple[Frame, bool]:
    """The samples as rows of `gpu_counters`, and whether they are on the recording's clock; none where it is not known
    that they are of this GPU.
    """
    sampled = [gpu for gpu in gpus(place.timeline) if gpu.has(*_SHARED)]
    own = next((gpu for gpu in sampled if gpu.device == place.device), None)
    working = [gpu for gpu in sampled if own and gpu.file == own.file and gpu.under_load(AT_WORK).any()]
    devices = [device for _, device in place.timeline.places]
    is_alone = len(working) <= max(place.timeline.world_size, len(devices)) and len(set(devices)) == len(devices)
    if own is None or not is_alone:
        return Frame.empty("gpu_counters"), False
    return _rows(place, own), bool(own.samples["is_on_clock"].all())


def _rows(place: Place, gpu: SampledGpu) -> Frame:
    taken = np.unique(gpu.samples.start_ns, return_index=True)[1]
    rows = gpu.samples.take(taken)
    ends, size = rows.start_ns, len(rows)
    usual = int(np.median(np.diff(ends))) if size > 1 else 0
    starts = np.maximum(np.concatenate((ends[:1] - usual, ends[:-1])), ends - _HOLE * usual)
    unknown = np.full(size, np.nan)
    names = (f"{column}: {COUNTERS[column].label} (DCGM)" for column in _SHARED)
    return Frame({
        "rank": np.full(size, place.rank), "device": np.full(size, place.device or 0),
        "start_ns": starts, "end_ns": ends, "name": Text.constant("dcgm", size),
        **{column: rows.floats(column) if column in _SHARED else unknown for column in COUNTERS},
        "spellings": Text.constant("\n".join(names), size),
    })  # fmt: skip

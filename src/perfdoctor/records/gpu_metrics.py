"""What did one counter of a GPU measure on the mean?"""

from __future__ import annotations

from msgspec import Struct


class GpuMetric(Struct, frozen=True):
    """One counter of the GPU of one rank. `metric`: its word here, "" for one that has none; `name`: as recorded.

    `unit`: percent of a peak, hertz, or "" as recorded. `recording_mean`: of all samples alike. `mean`: of those that
    begin in the analysed window, None where they cover less than 90 % of it. `mean_in_kernels`: while a kernel or a
    collective ran in it, each sample by the time that it covers; None where fewer than 30 samples do, or where they are
    not of the GPU that ran them.
    """

    rank: int
    device: int
    metric: str
    name: str
    unit: str
    samples: int
    recording_mean: float | None
    mean: float | None
    mean_in_kernels: float | None

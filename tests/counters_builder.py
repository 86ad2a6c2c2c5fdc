"""Recordings with the GPU's counters beside them, as they follow from what ran and from known rates of each kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perfdoctor.model.intervals import Intervals
from perfdoctor.model.timeline import Floats, Frame, Ints, Text, Timeline
from perfdoctor.vocabulary.gpu_counters import COUNTERS

PERIOD_NS = 100_000
#: What kernels do that are not named: all multiprocessors at work, and nothing on tensor cores.
_USUAL = {"gr_active_share": 1.0, "sm_active_share": 1.0, "tensor_active_share": 0.0, "dram_read_share": 0.2,
          "dram_write_share": 0.1}  # fmt: skip


def sampled(
    drawn: Timeline, rates: Mapping[str, Mapping[str, float]], *, period_ns: int = PERIOD_NS, behind_ns: int = 0,
    idle: Mapping[str, float] | None = None, first: int = 0, last: int | None = None,
    copying: Mapping[str, float] | None = None, clocks_hz: Callable[[Ints], Floats] | None = None,
) -> Timeline:  # fmt: skip
    """The recording with counters of its only GPU. `rates`: by a word of kernels' names, the counters while they run.

    Values are rounded to whole percent, as nsys does. `behind_ns`: the samples' clock is so much behind. `idle`: what
    counters show while nothing of ours runs. `first`, `last`: which samples are left. `copying`: what copies add to counters
    while they run. `clocks_hz`: the clock of the SMs at the begin of each sample.
    """
    work = [drawn["kernels"], drawn["collectives"]]
    begin = min(int(frame.start_ns[0]) for frame in work if len(frame)) - 37 * period_ns // 10
    end = max(int(frame.end_ns.max()) for frame in work if len(frame)) + 3 * period_ns
    starts = np.arange(begin, end, period_ns)[first:last]
    ends = starts + period_ns
    busy = Intervals.union(frame.intervals for frame in work)
    values = {column: np.full(starts.size, np.nan) for column in COUNTERS}
    for column in dict.fromkeys((*_USUAL, *(each for rate in rates.values() for each in rate))):
        rest = (idle or {}).get(column, 0.0)
        total = (period_ns - busy.overlap_ns(starts, ends)) * rest
        for frame in work:
            for number, name in enumerate(frame.name.values if len(frame) else ()):
                rows = frame.take(frame.name.codes == number)
                own = next((rate for word, rate in rates.items() if word in name), {})
                total = total + rows.intervals.overlap_ns(starts, ends) * own.get(column, _USUAL.get(column, 0.0))
        values[column] = np.rint(100 * total / period_ns) / 100
    for column, rate in (copying or {}).items():
        moved = drawn["copies"].intervals.overlap_ns(starts, ends) * rate / period_ns
        values[column] = np.nan_to_num(values[column]) + moved
    if clocks_hz is not None:
        values["clock_gpc_hz"] = clocks_hz(starts)
    spelled = "\n".join(f"{column}: {column}" for column in values)
    rank, device = drawn.places[0]
    return drawn.with_frame("gpu_counters", Frame({
        "rank": np.full(starts.size, rank), "device": np.full(starts.size, device),
        "start_ns": starts - behind_ns, "end_ns": ends - behind_ns, "name": Text.constant("nsys", starts.size),
        **values, "spellings": Text.constant(spelled, starts.size),
    }))  # fmt: skip

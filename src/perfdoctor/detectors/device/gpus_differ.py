"""One GPU runs the same kernels slower than the others do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from perfdoctor.detectors.saved_shares import half_certain
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.kernels.same_kernels import same_kernels
from perfdoctor.metrics.machine.gpu_samples import sampled
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.place import JobPlace
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the slowest device, if nearly all of its kernels are slower, and the others agree with each other."""
    found = same_kernels(run, at["min_kernel_us"] * 1000)
    if found is None or found.share_of_compute < at["min_compared_share"] or found.timed_share < at["min_timed_share"]:
        return
    worst = int(found.slowdown.argmax())
    place = found.places[worst]
    slower = float(found.slowdown[worst])
    rest = np.delete(found.slowdown, worst)
    if found.slower_share[worst] < at["min_slower_share"] or not _stands_out(slower - 1, rest, at):
        return
    excess_ns = place.per_step(place.compute.total_ns * (1 - 1 / slower))
    if excess_ns < at["min_share_of_step"] * run.step_ns:
        return
    caused_ns = _caused_ns(run, place)
    each = zip(found.places, found.slowdown.tolist(), strict=True)
    rows = sorted(((on.rank, on.info.name or "unknown", by) for on, by in each), key=lambda row: -row[2])
    units = ("count", "text", "share")
    yield Finding(
        rule="gpus-differ",
        saving_ns_per_step=half_certain(min(excess_ns, caused_ns), excess_ns),
        confidence="high" if len(found.places) > 2 else "medium",
        values={
            "slow_rank": place.rank,
            "slower_percent": percent(slower - 1),
            "kernels_percent": percent(float(found.slower_share[worst])),
            "excess_ms": ms(excess_ns),
            "caused_ms": ms(caused_ns),
            "step_ms": ms(run.step_ns),
        },
        evidence=(
            Measure("compute that a device as fast as the others would not need", excess_ns, "ns"),
            Measure("compute in kernels that all ranks run equally often", found.share_of_compute, "share"),
            Rows("The same kernels, against the middle rank", ("rank", "device", "time"), units, tuple(rows[:16])),
            *sampled(run),
        ),
    )


def _stands_out(slower_by: float, rest: npt.NDArray[np.float64], at: Mapping[str, float]) -> bool:
    """Is it slower by far more than the others differ among each other? Few of them do not show how much that is."""
    apart = float(rest.max() - rest.min())
    if rest.size < at["min_others"]:
        return slower_by >= at["min_slowdown"] >= apart
    return slower_by >= at["min_times_apart"] * apart


def _caused_ns(run: Run, place: JobPlace) -> int:
    """Ns a step by which collectives start later because this rank comes last; 0 where no rank is known to wait."""
    matched = skew(run.job)
    if matched is None or not matched.has(place.rank):
        return 0
    return place.per_step(int(matched.caused_ns[matched.number(place.rank)]))

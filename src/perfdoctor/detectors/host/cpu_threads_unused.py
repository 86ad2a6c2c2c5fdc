"""A training on a CPU computes long ops with few threads, while cores are idle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.affected import affected
from perfdoctor.detectors.saved_shares import Shares
from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.host import cpu_use
from perfdoctor.model.host_rows import own_ns
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find fewer threads than half of the cores, while the others were idle. How well ops share is a doubt."""
    cores, idle = cpu_use.cores_allowed(run), cpu_use.idle_cores(run)
    used = cpu_use.torch_threads(run) * max(cpu_use.training_processes(run), 1)
    if not host_places(run) or np.isnan([cores, idle, used]).any() or used >= at["most_used_share"] * cores:
        return
    if idle < at["min_idle_share"] * (cores - used):
        return

    def long_ops_ns(place: Place) -> int:
        assert isinstance(place, HostPlace)
        own = own_ns(place.rows("ops"), place.compute)
        return int(own[own >= at["long_op_ns"]].sum())

    found = affected(run, long_ops_ns, at["min_share_of_step"])
    if found is None:
        return
    yield Finding(
        rule="cpu-threads-unused",
        saving_ns_per_step=Shares(0.0, at["gain_share_likely"]).of(found.ns * (1 - used / cores)),
        confidence="medium",
        values={
            **found.time_values("long"),
            "torch_threads": cpu_use.torch_threads(run),
            "processes": max(cpu_use.training_processes(run), 1),
            "cores": cores,
            "idle_cores": idle,
        },
        evidence=(
            Measure("ops that compute for long", found.ns, "ns"),
            Measure("cores that the program may use", cores, "count"),
            Measure("idle cores", idle, "count"),
            Measure("threads for each op", cpu_use.torch_threads(run), "count"),
        ),
    )

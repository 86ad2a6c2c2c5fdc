"""The training itself has more threads that want to run than it may use cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.of_host import core_measures
from perfdoctor.metrics.host import cpu_use
from perfdoctor.metrics.units import ms, percent
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find that the training thread waited for a core that its own program had."""
    found = cpu_use.crowding(run)
    if found is None or found.waiting_share < at["min_waiting_share"]:
        return
    processes, threads = cpu_use.training_processes(run), cpu_use.torch_threads(run)
    is_held_back = cpu_use.throttled_share(run) >= at["min_throttled_share"] and threads * processes > found.cores
    is_own = found.own_demand > found.cores and found.by_others < at["most_share_of_others"]
    if not is_own and not is_held_back:
        return
    own_ns = (found.waiting_share - found.lost_share) * run.step_ns
    fitting = min(found.cores / max(processes, 1), 1.0)  # more processes than cores wait with one thread each, too
    yield Finding(
        rule="cpu-oversubscription",
        # Fewer threads compute longer on each op: where they hardly spin, that may take as long as the wait.
        saving_ns_per_step=Saving(0, int(at["recovered_share_likely"] * own_ns * fitting), int(own_ns)),
        confidence="medium",
        values={
            "cores": found.cores,
            "waiting_ms": ms(found.waiting_share * run.step_ns),
            "others_ms": ms(found.lost_share * run.step_ns),
            "step_ms": ms(run.step_ns),
            "waiting_percent": percent(found.waiting_share),
            "wanted": found.own_demand,
            "torch_threads": threads,
            "processes": processes,
        },
        evidence=core_measures(run, found),
        situation="quota" if is_held_back else "",
    )

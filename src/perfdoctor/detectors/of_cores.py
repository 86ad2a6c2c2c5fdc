"""Who had the cores that the training thread waited for: the numbers of findings about that."""

from __future__ import annotations

import math

from perfdoctor.metrics.host import cpu_use
from perfdoctor.metrics.host.cpu_use import Crowding
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Measure


def core_measures(run: Run, found: Crowding) -> tuple[Measure, ...]:
    """Who wanted cores, and who had them, as far as it is known."""
    every = (
        Measure("the training thread waited for a core, a step", found.waiting_share * run.step_ns, "ns"),
        Measure("cores that the program may use", found.cores, "count"),
        Measure("cores that the program used", cpu_use.program_cores(run), "count"),
        Measure("threads of the program that waited for a core", cpu_use.waiting_threads(run), "count"),
        Measure("cores that other programs used", found.others, "count"),
        Measure("threads of a training process", cpu_use.threads_per_process(run), "count"),
        Measure("its threads taken off a core, a second", cpu_use.involuntary_switches_per_second(run), "count"),
    )
    return tuple(each for each in every if not math.isnan(each.value))

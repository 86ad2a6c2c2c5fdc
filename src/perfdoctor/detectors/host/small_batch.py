"""On a CPU, ops are so short that calling them is most of the step, and no loop calls them: the batch is small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.affected import affected
from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.accounting.host_place import HostPlace, host_places
from perfdoctor.metrics.accounting.real_time import real_step_ns
from perfdoctor.metrics.host.batch_items import targets_per_step
from perfdoctor.metrics.host.short_ops import Dispatch, dispatch
from perfdoctor.metrics.units import us
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find ops that are mostly their call; on a GPU the same is launch-bound, which has the larger batch as a fix.

    The saving is for the items of one step, and only bounded: steps of more items take longer, but fewer are left.
    """
    if not host_places(run):
        return

    def called(place: Place) -> Dispatch:
        assert isinstance(place, HostPlace)
        return dispatch(place, at["op_dispatch_ns"], at["python_between_ops_ns"])

    found = affected(run, lambda place: called(place).total_ns, at["min_share_of_step"])
    if found is None or called(found.worst).share_of_ops < at["min_share_of_ops"]:
        return
    items = targets_per_step(found.worst) or 0.0
    item_us = us(real_step_ns(run) / items) if items else 0.0
    per_step = called(found.worst).count / found.worst.units
    yield Finding(
        rule="small-batch",
        saving_ns_per_step=at_most(found.ns),
        confidence="medium" if items else "low",
        values={**found.time_values("short"), "ops_per_step": per_step, "items": items, "item_us": item_us},
        evidence=(
            Measure("ops that compute next to nothing, and the Python between them", found.ns, "ns"),
            Measure("such ops a step", per_step, "count"),
            Measure("their share of the ops' time", called(found.worst).share_of_ops, "share"),
            *((Measure("time of an item", item_us * 1e3, "ns"),) if items else ()),
        ),
        symptom_of=("small-kernels",),
    )

"""The machine has a GPU, and the program computes on its processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.saved_shares import at_most
from perfdoctor.metrics.accounting.host_place import HostPlace, host_places, launches_gpu_work
from perfdoctor.metrics.units import ms
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.vocabulary.names import torch as torch_names


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find ops on the processor beside a GPU that the recording lists; how much faster that is, it does not show."""
    places = host_places(run)
    names = {device.name for device in run.timeline.devices if device.name}
    ops = sum(len(place.rows("ops")) for place in places)
    if not ops or not names or launches_gpu_work(run):
        return  # what ran on the GPU may stand behind the cut
    computing_ns = run.mean(lambda place: place.compute.total_ns)
    if computing_ns < at["min_computing_share"] * run.step_ns:
        return
    on_processor_ns = run.mean(_on_processor_ns)
    is_proven = on_processor_ns >= at["min_processor_share"] * computing_ns
    products_ns = [ns for place in places for ns in place.rows("ops").named(torch_names.MATMUL).duration_ns]
    # To launch a product takes less, however large it is: without the GPU's activities these may be launches.
    if not is_proven and (not products_ns or np.median(products_ns) < at["longest_launch_ns"]):
        return
    per_step = ops / sum(place.units for place in places)
    yield Finding(
        rule="unused-gpu",
        saving_ns_per_step=at_most(run.step_ns),
        confidence="high" if is_proven else "medium",
        values={
            "gpus": "a GPU" if len(run.timeline.devices) == 1 else f"{len(run.timeline.devices)} GPUs",
            "gpu": min(names),
            "ops_per_step": per_step,
            "step_ms": ms(run.step_ns),
        },
        evidence=(
            Measure("ops a step, of all training threads", per_step, "count"),
            Measure("ops run, of a step", computing_ns, "ns"),
            Measure("of it in ops that exist on processors alone", on_processor_ns, "ns"),
        ),
        situation="processor" if is_proven else "",
    )


def _on_processor_ns(place: Place) -> int:
    assert isinstance(place, HostPlace)  # there are no others where no GPU was recorded
    return (place.rows("ops").named(torch_names.CPU_ONLY).intervals & place.window).total_ns

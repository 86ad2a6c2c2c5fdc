"""Kernels that leave most SMs of the GPU without work while they run, as its own counters measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.of_work import Work, of_kernels
from perfdoctor.metrics.counters.kinds import counted_evidence, of_grids
from perfdoctor.metrics.finding_rows import saved_alone_ns
from perfdoctor.metrics.units import percent
from perfdoctor.model.columns import Floats, Mask
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names.base_names import base_name


def _active(place: Place) -> Floats:
    """The share of the SMs that are at work in each of `place.kernels`; NaN where it is not known."""
    return of_grids(place)["sm_active_share"]


def _idle(place: Place, at: Mapping[str, float]) -> Mask:
    """One bool a kernel: do most SMs have nothing to do in it? Of whole graphs nothing is known of the kernels."""
    kernels = place.kernels
    few: Mask = _active(place) <= at["few_sms_share"]  # of short ones small-kernels says it
    alone: Mask = few & (kernels.duration_ns >= at["short_kernel_ns"]) & (kernels["is_graph"] == 0)
    return alone


def _gained(place: Place, at: Mapping[str, float]) -> Floats:
    """The share of each kernel's time that is not needed with all SMs at work; what it moves takes as long anyway."""
    moving = np.nan_to_num(of_grids(place)["dram_share"]) / at["reached_memory_share"]
    gained: Floats = np.clip(1 - np.fmax(_active(place), moving), 0, 1)
    return gained


def _gained_ns(place: Place, at: Mapping[str, float]) -> float:
    """Ns of the window that are saved if all SMs have work until the end of each kernel."""
    rows = _idle(place, at)
    return saved_alone_ns(place, rows, float((place.kernel_ns * _gained(place, at))[rows].sum()))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find them by what the counters saw of kernels of their name and grid; the grid says why."""
    found = of_kernels(run, lambda place: _idle(place, at), at["min_share_of_step"])
    if found is None:
        return
    worst, rows = found.worst, found.worst_rows
    weight = worst.kernel_ns[rows].astype(float)
    blocks, sms = _usual_blocks(found), worst.info.sm_count
    known = blocks > 0 and sms > 0
    gained_ns = run.mean(lambda place: _gained_ns(place, at))
    longest = worst.kernels.name.take(rows).sums(worst.kernel_ns[rows])
    yield found.finding(
        rule="idle-sms",
        saving=Saving(0, int(gained_ns * at["filled_share"]), gained_ns),
        confidence="medium" if known else "low",
        values={
            **found.kernel_values(),
            "active_percent": percent(float(np.average(_active(worst)[rows], weights=weight))),
            "gained_percent": percent(float(np.average(_gained(worst, at)[rows], weights=weight))),
            "blocks": blocks,
            "sms": sms,
            "name": base_name(max(longest, key=lambda each: each[2])[0]),
        },
        evidence=(*counted_evidence(worst, rows), *found.kernel_evidence("kernels that leave most SMs idle, a step")),
        situation=("few-blocks" if blocks < sms else "uneven") if known else "",
    )


def _usual_blocks(found: Work) -> int:
    """The number of blocks of the kernels with most of the time; 0 where it is not known."""
    blocks = found.worst.kernels["blocks"][found.worst_rows]
    spent = {each: int(found.worst.kernel_ns[found.worst_rows][blocks == each].sum()) for each in np.unique(blocks)}
    return max(int(max(spent, key=lambda each: spent[each])), 0)

"""Where did the time of one place go? Its window as plain numbers that sum exactly."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from perfdoctor.metrics.accounting.host_place import HostPlace
from perfdoctor.metrics.communication.nodes import first_ranks
from perfdoctor.model.cache import kept_in_summaries
from perfdoctor.model.columns import Floats, Ints
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.steps import NO_STEPS
from perfdoctor.records.time_split import JobTime, MeanTime, TimeSplit
from perfdoctor.vocabulary.kinds import KERNEL_FAMILIES, MATH_PATHS, MATMUL_FAMILIES, OP_PHASES
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names


@kept_in_summaries
def split(place: Place) -> TimeSplit:
    """The accounting of one place as plain numbers."""
    result = TimeSplit(
        rank=place.rank,
        device=place.device,
        window_start_ns=int(place.window.starts[0]) if place.window else 0,
        window_ns=place.window_ns,
        step_ns=place.per_step(place.window_ns) if place.steps.used else None,
        compute_ns=place.compute.total_ns,
        exposed_communication_ns=place.exposed_communication.total_ns,
        exposed_copy_ns=place.exposed_copies.total_ns,
        idle_ns=place.idle.total_ns,
        communication_ns=place.communication.total_ns,
        hidden_communication_ns=(place.communication & place.compute).total_ns,
        copy_ns=place.copying.total_ns,
        kernel_count=len(place.kernels) + (0 if place.device is None else len(place.collectives)),
        idle_causes_ns={cause: pieces.total_ns for cause, pieces in place.idle_causes.items()},
        # Kernels that overlap each count in full.
        compute_by_family_ns={
            family: int(place.kernel_ns[place.kernel_rows(family)].sum()) for family in KERNEL_FAMILIES
        },
        matmul_ns_by_math_path=_by_math_path(place),
        compute_by_phase_ns=compute_by_phase(place),
    )
    parts_ns = result.compute_ns + result.exposed_communication_ns + result.exposed_copy_ns + result.idle_ns
    assert parts_ns == result.window_ns, "the parts of a window must sum to it"
    assert sum(result.idle_causes_ns.values()) == result.idle_ns, "the causes of idle must sum to it"
    return result


def split_of_all(place: Place) -> TimeSplit:
    """The accounting of one place from its first to its last event on the device."""
    whole = whole_recording(place)
    found = split(whole)
    if whole is not place:
        whole.kept.clear()  # some of it refers to the place, which would stay with all that was worked out of it
    return found


def _by_math_path(place: Place) -> dict[str, int]:
    matmul = place.kernel_rows(*MATMUL_FAMILIES)
    paths = {path: place.kernels.name.has(kernel_names.math_path, path) for path in MATH_PATHS}
    return {path: int(place.kernel_ns[matmul & rows].sum()) for path, rows in paths.items()}


def whole_recording(place: Place) -> Place:
    """The place from its first to its last event on the device instead of its steady steps."""
    if place.device is None or not len(place.work):
        return place
    window = Intervals.single(int(place.work.start_ns[0]), int(place.work.end_ns.max()))
    if window == place.window and not place.steps.used and place.asked is None:
        return place
    return replace(place, window=window, steps=NO_STEPS, asked=None)


def compute_by_phase(place: Place) -> dict[str, int]:
    """The time of its ops by OP_PHASES, in ns, which add up to its compute; empty where a GPU was recorded."""
    if not isinstance(place, HostPlace):
        return {}
    ops, ranges = place.rows("ops"), place.rows("ranges")
    nodes, passes = ops.named(torch_names.AUTOGRAD_NODE), ranges.named(torch_names.BACKWARD)
    backward = place.compute & (nodes.intervals | passes.intervals)
    updates = [rows.named(torch_names.OPTIMIZER_RANGE) for rows in (ranges, ops)]
    updating = Intervals.union(rows.intervals for rows in updates)
    optimizer = (place.compute - backward) & updating
    other_ns = place.compute.total_ns - backward.total_ns - optimizer.total_ns
    return dict(zip(OP_PHASES, (other_ns, backward.total_ns, optimizer.total_ns), strict=True))


def _mean(parts: Floats, ranks: Ints) -> MeanTime:
    return MeanTime(int(ranks.min()), int(np.unique(ranks).size), *np.rint(parts.mean(axis=0)).astype(int).tolist())


def job_time(run: Run) -> JobTime | None:
    """A mean step of the job and of each node; None where every rank was read in full and has its own split."""
    if run.summaries is None:
        return None
    places, rows = run.job.places, []
    for place in places:
        own = split(place)
        ns = (own.window_ns, own.compute_ns, own.exposed_communication_ns, own.exposed_copy_ns, own.idle_ns)
        rows.append([each / place.units for each in ns])
    parts = np.array(rows)
    ranks = np.array([place.rank for place in places])
    first = first_ranks(places)
    nodes = [] if first is None else [np.flatnonzero(first == node) for node in np.unique(first).tolist()]
    return JobTime(_mean(parts, ranks), tuple(_mean(parts[node], ranks[node]) for node in nodes))

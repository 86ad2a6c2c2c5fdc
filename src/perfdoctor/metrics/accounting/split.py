"""Where did the time of one place go? Its window as plain numbers that sum exactly."""

from __future__ import annotations

from msgspec.structs import replace

from perfdoctor.metrics.accounting.op_phases import compute_by_phase
from perfdoctor.model.cache import kept_in_summaries
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.steps import NO_STEPS
from perfdoctor.records.time_split import TimeSplit
from perfdoctor.vocabulary.kinds import KERNEL_FAMILIES, MATH_PATHS, MATMUL_FAMILIES
from perfdoctor.vocabulary.names import kernels as kernel_names


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
        compute_by_family_ns=_by_family(place),
        matmul_ns_by_math_path=_by_math_path(place),
        compute_by_phase_ns=compute_by_phase(place),
    )
    _self_check(result)
    return result


def split_of_all(place: Place) -> TimeSplit:
    """The same from its first to its last event on the device."""
    whole = whole_recording(place)
    found = split(whole)
    if whole is not place:
        whole.kept.clear()  # some of it refers to the place, which would stay with all that was worked out of it
    return found


def _self_check(result: TimeSplit) -> None:
    parts = result.compute_ns + result.exposed_communication_ns + result.exposed_copy_ns + result.idle_ns
    assert parts == result.window_ns, "the parts of a window must sum to it"
    assert sum(result.idle_causes_ns.values()) == result.idle_ns, "the causes of idle must sum to it"


def _by_family(place: Place) -> dict[str, int]:
    """Kernel time by family, in ns; kernels that overlap each count in full."""
    return {family: int(place.kernel_ns[place.kernel_rows(family)].sum()) for family in KERNEL_FAMILIES}


def _by_math_path(place: Place) -> dict[str, int]:
    matmul = place.kernel_rows(*MATMUL_FAMILIES)
    paths = {path: place.kernels.name.has(kernel_names.math_path, path) for path in MATH_PATHS}
    return {path: int(place.kernel_ns[matmul & rows].sum()) for path, rows in paths.items()}


def whole_recording(place: Place) -> Place:
    """The same place, from its first to its last event on the device instead of its steady steps."""
    if place.device is None or not len(place.work):
        return place
    window = Intervals.single(int(place.work.start_ns[0]), int(place.work.end_ns.max()))
    if window == place.window and not place.steps.used and place.asked is None:
        return place
    return replace(place, window=window, steps=NO_STEPS, asked=None)

"""Which recordings are no series of one training on different numbers of GPUs, and why not?"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.comparison.records import Snapshot
from perfdoctor.comparison.refusal import refuse
from perfdoctor.comparison.scaling.records import Recorded
from perfdoctor.errors import PerfdoctorError
from perfdoctor.vocabulary.names.base_names import base_name
from perfdoctor.vocabulary.names.running_numbers import without_numbers

#: Of 20 public recordings, those of one model share 0.84 and more through other precisions, fusions and 1 to 4 GPUs;
#: most of two models share less than a half.
LEAST_IN_COMMON, USUALLY_IN_COMMON = 0.5, 0.8
_SAY_LITTLE = ("", "elementwise", "other")


def refuse_series(series: Sequence[Recorded]) -> None:
    """Raise PerfdoctorError where these are not one training on different numbers of ranks."""
    snapshots = [each.snapshot for each in series]
    for each in series:
        if not each.ranks:
            raise PerfdoctorError(
                f"{each.snapshot.name} does not say among how many ranks it was recorded",
                do=f"Write the number before it: 4={each.snapshot.name}",
            )
    refuse(snapshots[:1], snapshots[1:])
    first = snapshots[0]
    for other in snapshots[1:]:
        ours, theirs = (each.settings.get("GPU", "") for each in (first, other))
        if ours and theirs and ours != theirs:
            raise PerfdoctorError(
                f"{first.name} and {other.name} are no series: the one ran on {ours}, the other on {theirs}",
                do="Record all on GPUs of one kind.",
            )
        if in_common(first, other) < LEAST_IN_COMMON:
            raise PerfdoctorError(
                f"{first.name} and {other.name} are no series: less than half of their compute time has the same names",
                do="Give recordings of one model and one program, on different numbers of GPUs.",
            )
    if len({each.ranks for each in series}) < 2:
        raise PerfdoctorError(
            f"all of these were recorded among {series[0].ranks} ranks",
            do="Give recordings among different numbers, or use perfdoctor compare without --scaling.",
        )


def in_common(one: Snapshot, other: Snapshot) -> float:
    """Which share of compute time has a name that the other has, on the side where it is less.

    Not by how much of each there is: that is what changes with the number of ranks.
    """
    by_op = all(each.op for run in (one, other) for each in run.work if each.part == "compute" and each.kernel)
    ours, theirs = (_shares(run, by_op=by_op) for run in (one, other))
    return min(sum(share for name, share in side.items() if name in ours and name in theirs) for side in (ours, theirs))


def _shares(run: Snapshot, *, by_op: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in run.work:
        if each.part == "compute" and (each.op if by_op else each.kernel):
            name = without_numbers(each.op) if by_op else _kernel(each.group, each.kernel)
            found[name] = found.get(name, 0.0) + each.ns
    whole = sum(found.values())
    return {name: ns / whole for name, ns in found.items()} if whole else {}


def _kernel(family: str, name: str) -> str:
    """The family, whose kernels a library chooses by size; the function's own name where the family says little."""
    return without_numbers(base_name(name)) if family in _SAY_LITTLE else family

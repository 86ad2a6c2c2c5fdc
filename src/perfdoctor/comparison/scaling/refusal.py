"""Which recordings are no series of one training on different numbers of GPUs, and why not?"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.comparison.common_work import in_common
from perfdoctor.comparison.records import LEAST_IN_COMMON
from perfdoctor.comparison.refusal import refuse
from perfdoctor.comparison.scaling.records import Recorded
from perfdoctor.errors import PerfdoctorError


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

"""Which recordings cannot be compared, or are no series of one training on different numbers of GPUs, and why not?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfdoctor.comparison.matching import by_names, in_common, in_common_by_shapes
from perfdoctor.comparison.records import LEAST_IN_COMMON, Snapshot
from perfdoctor.comparison.scaling.records import Recorded
from perfdoctor.errors import PerfdoctorError

#: Of the 231 pairs of 22 programs on a processor in fixtures/pairs, 222 share less than 0.07 of their compute time by
#: op and shapes; of the other nine, which share 0.14 to 1.0, eight train one model.
_LEAST_BY_SHAPES = 0.1


def refuse(before: Sequence[Snapshot], after: Sequence[Snapshot], *, other_program: bool = False) -> None:
    """Raise PerfdoctorError if a difference of these would say nothing about a change of the program.

    `other_program`: may they be two programs?
    """
    for each in (*before, *after):
        if not each.step_ns:
            raise PerfdoctorError(
                f"{each.name} holds no work that could be compared",
                do=f"To see what it lacks, and how to record that: perfdoctor analyze {each.name}",
            )
    if not other_program:
        _refuse_other_programs(before[0], [*before[1:], *after])
    _same(before, after, lambda each: "on a CPU alone" if each.without_gpu else "on a GPU", "Record both on one.")
    _same(
        before, after, lambda each: f"in {each.basis}s" if each.basis else "without steps",
        "Record both with steps: perfdoctor run marks them, or --range selects the same part of both.",
    )  # fmt: skip


def _refuse_other_programs(first: Snapshot, others: Sequence[Snapshot]) -> None:
    """Raise PerfdoctorError for a run of another project or command whose work is another one, too.

    The same work under another name is what a change often looks like: `fast.py` beside `slow.py`, a second checkout.
    """
    for other in others:
        if first.project and other.project and first.project != other.project and _is_other_work(first, other):
            raise PerfdoctorError(
                f"{first.name} and {other.name} are two programs: {_program(first)}, and {_program(other)}, which "
                "compute other things",
                do="Give two recordings of one program, or, if they are one, --other-program.",
            )


def _is_other_work(one: Snapshot, other: Snapshot) -> bool:
    """Have they few names of their compute time in common; or, of two projects, few ops on tensors of the same sizes?

    Processors run few ops under their names: all programs share most of them.
    """
    if not by_names(one, other):
        return False
    elsewhere = one.project.partition(" ")[0] != other.project.partition(" ")[0]
    same_batch = one.items_per_step == other.items_per_step
    return in_common(one, other) < LEAST_IN_COMMON or (
        elsewhere and same_batch and in_common_by_shapes(one, other) < _LEAST_BY_SHAPES
    )


def _program(run: Snapshot) -> str:
    return f"`{run.project.partition(' ')[2]}` in {run.settings.get('project', 'another project')}"


def refuse_series(series: Sequence[Recorded]) -> None:
    """Raise PerfdoctorError if these are not recordings of one training on different numbers of ranks."""
    snapshots = [each.snapshot for each in series]
    for each in series:
        if not each.ranks:
            raise PerfdoctorError(
                f"{each.snapshot.name} does not say among how many ranks it was recorded",
                do=f"Write the number before it: 4={each.snapshot.name}",
            )
    refuse(snapshots[:1], snapshots[1:], other_program=True)
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


def _same(before: Sequence[Snapshot], after: Sequence[Snapshot], fact: Callable[[Snapshot], str], do: str) -> None:
    first = before[0]
    for other in (*before[1:], *after):
        if fact(other) != fact(first):
            raise PerfdoctorError(
                f"{first.name} and {other.name} cannot be compared: the one is {fact(first)}, the other {fact(other)}",
                do=do,
            )

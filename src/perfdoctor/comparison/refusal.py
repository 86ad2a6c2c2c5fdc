"""Which recordings cannot be compared, or say nothing together, or are no series over numbers of GPUs, and why not?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfdoctor.comparison.matching import by_names, in_common, in_common_by_shapes
from perfdoctor.comparison.records import LEAST_IN_COMMON, Setting, Snapshot
from perfdoctor.comparison.scaling.records import Recorded
from perfdoctor.comparison.without_steps import LAUNCH
from perfdoctor.errors import PerfdoctorError
from perfdoctor.vocabulary.names.kernels import is_compiled

#: Of the 231 pairs of 22 programs on a processor in fixtures/pairs, 222 share less than 0.07 of their compute time by
#: op and shapes; of the other nine, which share 0.14 to 1.0, eight train one model.
_LEAST_BY_SHAPES = 0.1
_NOUNS = {"ranks": "rank", "number of GPUs": "GPU"}


def refuse(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> None:
    """Raise PerfdoctorError where the sides have no time of one kind, so that there is no difference."""
    for each in (*before, *after):
        if not each.step_ns:
            raise PerfdoctorError(
                f"{each.name} holds no work that could be compared",
                do=f"To see what it lacks, and how to record that: perfdoctor analyze {each.name}",
            )
    _same(before, after, lambda each: "on a CPU alone" if each.without_gpu else "on a GPU", "Record both on one.")
    _same(
        before, after, _times,
        "Record both with steps: perfdoctor run marks them, or --range selects the same part of both.",
    )  # fmt: skip


def refuse_without_steps(runs: Sequence[Snapshot]) -> None:
    """Raise PerfdoctorError for kernels that were measured alone, and for snapshots of memory."""
    for each in runs:
        if each.basis == LAUNCH or not each.step_ns:
            raise PerfdoctorError(
                f"{each.name} holds no step that could be checked",
                do="Record steps, or let perfdoctor compare hold measured kernels, or peaks of memory, against others.",
            )


def _times(run: Snapshot) -> str:
    if run.basis == LAUNCH:
        return "of kernels measured alone"
    return f"in {run.basis}s" if run.basis else "without steps"


def not_comparable(
    before: Sequence[Snapshot], after: Sequence[Snapshot], settings: Sequence[Setting]
) -> tuple[str, ...]:
    """Why a difference of these steps says nothing about a change of the program, in clauses; () where it does."""
    differ = {each.name: each for each in settings}
    reasons = [f"BEFORE ran on {differ['GPU'].before}, AFTER on {differ['GPU'].after}"] if "GPU" in differ else []
    # Of one job more or fewer ranks may be recorded; where one process drives several GPUs, these are what counts.
    counted = "ranks" if "ranks" in differ else "number of GPUs" if _several_a_rank(before, after) else ""
    if counted in differ:
        was, now = differ[counted].before, differ[counted].after
        reasons.append(f"BEFORE ran with {was} {_NOUNS[counted]}{'s' * (was != '1')}, AFTER with {now}")
    first = before[0]
    for other in (*before[1:], *after):
        if first.project and other.project:
            if first.project != other.project and _is_other_work(first, other):
                return (*reasons, f"{first.name} is {_program(first)}, and {other.name} {_program(other)}")
        elif (share := _share_in_common(first, other)) < LEAST_IN_COMMON:
            common = f"{100 * share:.0f} % of the compute time has names that both have"
            return (*reasons, f"only {common}: another program or model")
    return tuple(reasons)


def _several_a_rank(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> bool:
    settings = [each.settings for each in (*before, *after)]
    return any(int(each.get("number of GPUs", 0)) > int(each.get("ranks", 0)) for each in settings)


def _share_in_common(one: Snapshot, other: Snapshot) -> float:
    """The share of the compute time (0-1); 1 where names say nothing: a run has none, a compiler gave them, or it is
    single kernels that somebody wrote anew.
    """
    if one.basis == LAUNCH or not by_names(one, other) or any(map(_is_compiled, (one, other))):
        return 1.0
    return in_common(one, other)


def _is_compiled(run: Snapshot) -> bool:
    """Did a compiler make any of its kernels? They have names of their own, and so have their ops."""
    return any(each.part == "compute" and is_compiled(each.kernel) for each in run.work)


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
    refuse(snapshots[:1], snapshots[1:])
    first = snapshots[0]
    for other in snapshots[1:]:
        ours, theirs = (each.settings.get("GPU", "") for each in (first, other))
        if ours and theirs and ours != theirs:
            raise PerfdoctorError(
                f"{first.name} and {other.name} are no series: the one ran on {ours}, the other on {theirs}",
                do="Record all on GPUs of one kind.",
            )
        if by_names(first, other) and in_common(first, other) < LEAST_IN_COMMON:
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

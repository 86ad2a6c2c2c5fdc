"""Which recordings cannot be compared, and why not?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfdoctor.comparison.records import Snapshot
from perfdoctor.errors import PerfdoctorError


def refuse(before: Sequence[Snapshot], after: Sequence[Snapshot]) -> None:
    """Raise PerfdoctorError where a difference of these would say nothing about a change of the program."""
    for each in (*before, *after):
        if not each.step_ns:
            raise PerfdoctorError(
                f"{each.name} holds no work that could be compared",
                do=f"To see what it lacks, and how to record that: perfdoctor analyze {each.name}",
            )
    _same(before, after, lambda each: "on a CPU alone" if each.without_gpu else "on a GPU", "Record both on one.")
    _same(
        before, after, lambda each: f"in {each.basis}s" if each.basis else "without steps",
        "Record both with steps: perfdoctor run marks them, or --range selects the same part of both.",
    )  # fmt: skip


def _same(before: Sequence[Snapshot], after: Sequence[Snapshot], fact: Callable[[Snapshot], str], do: str) -> None:
    first = before[0]
    for other in (*before[1:], *after):
        if fact(other) != fact(first):
            raise PerfdoctorError(
                f"{first.name} and {other.name} cannot be compared: the one is {fact(first)}, the other {fact(other)}",
                do=do,
            )

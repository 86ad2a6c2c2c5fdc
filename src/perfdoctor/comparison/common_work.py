"""Which share of their work do two runs have in common, by its names? Little: they are two programs."""

from __future__ import annotations

from perfdoctor.comparison.records import Snapshot
from perfdoctor.vocabulary.names.base_names import base_name, without_numbers

#: What recordings of one model usually have in common; `LEAST_IN_COMMON` says whence it is known.
USUALLY_IN_COMMON = 0.8
_SAY_LITTLE = ("", "elementwise", "other")


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

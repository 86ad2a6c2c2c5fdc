"""Which work of BEFORE is which of AFTER, and what came, went, grew and shrank?

First what has the same name, op, shapes and place in the step. What is left is matched by less and less: the same op
with other kernels (cuBLAS, then nvjet), the same op with other shapes, the same module, as a compiler fuses its ops
into kernels of its own, the same function of a kernel with other template arguments, the same family in the same phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from perfdoctor.comparison.records import Changed, Fate, Snapshot, WorkTime, summed, sums
from perfdoctor.vocabulary.names import loaders
from perfdoctor.vocabulary.names.base_names import base_name, without_numbers

#: Less than a thousandth of the step is as much as before.
SAME_SHARE = 0.001
_NO_FAMILY = ("", "other")
_SAYS_NOTHING = ("", "kernel", "operator()")
COMPUTE, COMMUNICATION = "compute", "exposed_communication"
#: Of the optimizer's update, as `work.OPTIMIZER`.
OPTIMIZER = "optimizer"
UPDATE = "the update of the weights"
LOADER = "the DataLoader's next batch"
#: What is matched by it has many shapes.
_NO_SHAPES = ("module", "range", "family", "optimizer")
#: What recordings of one model usually have in common, as a share; `LEAST_IN_COMMON` says whence that is known.
USUALLY_IN_COMMON = 0.8
_SAY_LITTLE = (*_NO_FAMILY, "elementwise")
Key = tuple[str, ...]


class _Pair(Struct, frozen=True):
    """Work that both sides, or one, have; `by`: what they have in common."""

    by: str
    before: tuple[WorkTime, ...]
    after: tuple[WorkTime, ...]


def _function(work: WorkTime) -> str:
    """The function of a kernel whose name says what it does; "" for torch's element-wise ones, whose arguments do."""
    name = base_name(work.kernel) if work.part == COMPUTE and work.group != "elementwise" else ""
    return name if name.lower().rstrip("0123456789") not in _SAYS_NOTHING else ""


def _of_compute(work: WorkTime, name: str) -> Key | None:
    """The key of compute that has this name and its phase in common; None for other work, and without a name."""
    return (work.part, name, work.phase) if name and work.part == COMPUTE else None


def _of_update(work: WorkTime) -> Key | None:
    """However it is written, the update of the weights is one place in the step."""
    return (work.part, work.phase) if work.phase == OPTIMIZER and work.part == COMPUTE else None


#: What work is matched by, the surest first: its name, and the key that both sides share; None where it has none.
_RULES: Sequence[tuple[str, Callable[[WorkTime], Key | None]]] = (
    ("name, shapes and place", lambda work: (work.part, work.kernel, work.op, work.shapes, work.phase)),
    ("op and shapes", lambda work: (work.part, work.op, work.shapes, work.phase) if work.op else None),
    ("op", lambda work: (work.part, work.op, work.phase) if work.op else None),
    ("name", lambda work: (work.part, work.kernel) if work.kernel else None),
    # PyTorch's loader has one name with worker processes, and another without.
    ("loader", lambda work: (work.part, LOADER) if loaders.PYTORCH_NEXT.search(work.kernel) else None),
    ("module", lambda work: _of_compute(work, work.module)),
    ("function of the kernel", lambda work: _of_compute(work, _function(work))),
    ("family", lambda work: _of_compute(work, "" if work.group in _NO_FAMILY else work.group)),
    ("range", lambda work: _of_compute(work, work.inside)),
    ("optimizer", _of_update),
)


def pairs(before: Sequence[WorkTime], after: Sequence[WorkTime]) -> list[_Pair]:
    """The work of `before` and of `after`, matched; each is in one pair."""
    found: list[_Pair] = []
    left, right = list(before), list(after)
    for by, key in _RULES:
        ours, theirs = _by_key(left, key), _by_key(right, key)
        common = [each for each in ours if each in theirs]
        found += [_Pair(by, tuple(ours[each]), tuple(theirs[each])) for each in common]
        known = set(common)
        left = [work for work in left if key(work) not in known]
        right = [work for work in right if key(work) not in known]
    found += [_Pair("", tuple(works), ()) for works in _by_key(left, _alone).values()]
    found += [_Pair("", (), tuple(works)) for works in _by_key(right, _alone).values()]
    return found


def _alone(work: WorkTime) -> Key:
    return (work.part, work.op or work.kernel, work.phase)


def _by_key(works: Sequence[WorkTime], key: Callable[[WorkTime], Key | None]) -> dict[Key, list[WorkTime]]:
    found: dict[Key, list[WorkTime]] = {}
    for work in works:
        name = key(work)
        if name is not None:
            found.setdefault(name, []).append(work)
    return found


def changes(
    before: Sequence[WorkTime], after: Sequence[WorkTime], steps_ns: tuple[int, int], most: int
) -> tuple[tuple[Changed, ...], int, int]:
    """The `most` largest changes, what all others bring together in ns, and how many these are.

    `steps_ns`: the mean steps of both sides, to whose difference all of it sums exactly.
    """
    every = sorted(pairs(before, after), key=lambda pair: -abs(_ns(pair.after) - _ns(pair.before)))
    ours = whole_numbers([_ns(pair.before) for pair in every], steps_ns[0])
    theirs = whole_numbers([_ns(pair.after) for pair in every], steps_ns[1])
    least = SAME_SHARE * steps_ns[0]
    shown = [at for at in range(min(most, len(every))) if abs(theirs[at] - ours[at]) >= least]
    listed = tuple(_changed(every[at], ours[at], theirs[at], steps_ns[0]) for at in shown)
    rest = steps_ns[1] - steps_ns[0] - sum(each.delta_ns for each in listed)
    return listed, rest, len(every) - len(listed)


def whole_numbers(values: Sequence[float], whole: int) -> list[int]:
    """The values rounded so that they sum to the whole: those whose remainders are largest get one more."""
    if not values:
        return []
    exact = np.asarray(values, np.float64)
    exact[int(exact.argmax())] += whole - exact.sum()
    low = np.floor(exact + 1e-6).astype(np.int64)
    missing = int(whole - low.sum())
    order = np.argsort(low - exact, kind="stable")
    low[order[:missing]] += 1
    return [int(each) for each in low]


def fate(before: float, after: float, step_ns: float) -> Fate:
    if abs(after - before) < SAME_SHARE * step_ns:
        return "same"
    if not before:
        return "came"
    if not after:
        return "went"
    return "grew" if after > before else "shrank"


def _ns(works: Sequence[WorkTime]) -> float:
    return sum(work.ns for work in works)


def _changed(pair: _Pair, before_ns: int, after_ns: int, step_ns: float) -> Changed:
    was, now = _names(pair.before), _names(pair.after)
    one = max((*pair.before, *pair.after), key=lambda work: work.ns)
    return Changed(
        part=one.part,
        label=_label(pair, one),
        matched_by=pair.by,
        where=" · ".join(text for text in (one.phase if pair.by != "optimizer" else "", _shapes(pair)) if text),
        was=was if was != now else (),
        now=now if was != now else (),
        before_ns=before_ns,
        after_ns=after_ns,
        delta_ns=after_ns - before_ns,
        before_count=sum(work.count for work in pair.before),
        after_count=sum(work.count for work in pair.after),
        fate=fate(before_ns, after_ns, step_ns),
    )


def _label(pair: _Pair, one: WorkTime) -> str:
    if pair.by == "module":
        return one.module
    if pair.by == "range":
        return one.inside
    if pair.by == "optimizer":
        return UPDATE
    if pair.by == "loader":
        return LOADER
    if pair.by == "family":
        return f"{one.group} kernels"
    if pair.by == "function of the kernel":
        return base_name(one.kernel)
    if one.part == COMMUNICATION and one.group not in _NO_FAMILY:
        return one.group
    return one.op or one.kernel


def _shapes(pair: _Pair) -> str:
    """The shapes of the op's tensors if all of the pair have the same, else ""."""
    different = {work.shapes for work in (*pair.before, *pair.after)}
    shapes = different.pop() if len(different) == 1 else ""
    said = shapes.replace(", []", "") if pair.by not in _NO_SHAPES else ""
    return said if said != "[[]]" else ""


def _names(works: Sequence[WorkTime]) -> tuple[str, ...]:
    """The names, those that take most time first."""
    sizes = sums((work.kernel, work.ns) for work in works)
    return tuple(sorted((name for name in sizes if name), key=lambda name: (-sizes[name], name)))


def merged(runs: Sequence[Sequence[WorkTime]]) -> tuple[WorkTime, ...]:
    """The mean of several runs: work that has all names in common is one."""
    if len(runs) == 1:
        return tuple(runs[0])
    return summed((work.names, work.ns / len(runs), work.count / len(runs)) for run in runs for work in run)


def mean_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of several runs, by name; what one lacks is 0 there."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: sum(run.get(name, 0.0) for run in runs) / len(runs) for name in names}


def by_names(*runs: Snapshot) -> bool:
    """Has each of the runs compute time by name?"""
    return all(any(each.part == COMPUTE and (each.op or each.kernel) for each in run.work) for run in runs)


def in_common_by_shapes(one: Snapshot, other: Snapshot) -> float:
    """The share of compute time (0-1) whose op and shapes both have, on the side where it is less; 1 without shapes."""
    sides = [
        sums((f"{each.op} {each.shapes}", each.ns) for each in run.work if each.part == COMPUTE and each.op)
        for run in (one, other)
    ]
    if not all(any(each.shapes for each in run.work if each.part == COMPUTE) for run in (one, other)):
        return 1.0
    common = sides[0].keys() & sides[1].keys()
    return min(sum(side[name] for name in common) / max(sum(side.values()), 1.0) for side in sides)


def in_common(one: Snapshot, other: Snapshot) -> float:
    """The share of compute time (0-1) whose names both have, on the side where it is less: little of two programs.

    It does not depend on how much of each there is, which changes with the number of ranks.
    """
    by_op = all(each.op for run in (one, other) for each in run.work if each.part == "compute" and each.kernel)
    ours, theirs = (_shares(run, by_op=by_op) for run in (one, other))
    return min(sum(share for name, share in side.items() if name in ours and name in theirs) for side in (ours, theirs))


def _shares(run: Snapshot, *, by_op: bool) -> dict[str, float]:
    """The share of each op, or kernel, in the compute time of the run (0-1), by its name."""
    found = sums(
        (without_numbers(each.op) if by_op else _kernel(each.group, each.kernel), each.ns)
        for each in run.work
        if each.part == COMPUTE and (each.op if by_op else each.kernel)
    )
    whole = sum(found.values())
    return {name: ns / whole for name, ns in found.items()} if whole else {}


def _kernel(family: str, name: str) -> str:
    """The family, whose kernels a library chooses by size; the function's own name where the family says little."""
    return without_numbers(base_name(name)) if family in _SAY_LITTLE else family

"""Which causes make the difference of the mean step, and by how much each? They sum to it exactly.

A cause is a part of the step; compute is cut further, by the families of its kernels (without a GPU, by phases).
"""

from __future__ import annotations

from collections.abc import Mapping

from perfdoctor.comparison.matching import fate, whole_numbers
from perfdoctor.comparison.records import Contribution
from perfdoctor.comparison.without_steps import LIMIT
from perfdoctor.metrics.work.phases import FORWARD
from perfdoctor.vocabulary.kinds import KERNEL_LIMITS, OP_PHASES
from perfdoctor.vocabulary.parts import PARTS

COMPUTE = "compute:"
_PHASES = {**OP_PHASES, FORWARD: "forward pass", "other": "others"}


def contributions(
    before: tuple[Mapping[str, float], Mapping[str, float]],
    after: tuple[Mapping[str, float], Mapping[str, float]],
    steps_ns: tuple[int, int],
    *,
    without_gpu: bool,
) -> tuple[Contribution, ...]:
    """What changed most first; then what is as before, the longest first.

    Each side: its parts, and its compute by family, in ns a step. `steps_ns`: their sums.
    """
    ours, theirs = causes_of(*before), causes_of(*after)
    names = [name for name in dict.fromkeys((*ours, *theirs)) if max(ours.get(name, 0), theirs.get(name, 0)) >= 1]
    whole = [
        dict(zip(names, whole_numbers([side.get(name, 0.0) for name in names], step_ns), strict=True))
        for side, step_ns in zip((ours, theirs), steps_ns, strict=True)
    ]
    fates = {name: fate(whole[0][name], whole[1][name], steps_ns[0]) for name in names}
    changed = sorted(names, key=lambda name: -abs(whole[1][name] - whole[0][name]))
    unchanged = sorted(names, key=lambda name: -whole[0][name])
    ordered = [name for name in changed if fates[name] != "same"] + [
        name for name in unchanged if fates[name] == "same"
    ]
    return tuple(
        Contribution(
            key=name,
            label=cause_label(name, without_gpu=without_gpu),
            before_ns=whole[0][name],
            after_ns=whole[1][name],
            delta_ns=whole[1][name] - whole[0][name],
            fate=fates[name],
            rules=() if name.startswith(COMPUTE) else PARTS[name].rules,
        )
        for name in ordered
    )


def causes_of(parts: Mapping[str, float], compute: Mapping[str, float]) -> dict[str, float]:
    """The parts of a step, with compute cut by families, in ns a step."""
    if not compute:  # no kernel is known by its name
        return dict(parts)
    found = {part: ns for part, ns in parts.items() if part != "compute"}
    left = parts.get("compute", 0.0) - sum(compute.values())
    kinds = {**compute, "other": compute.get("other", 0.0) + left} if parts.get("compute") else {}
    return {**found, **{f"{COMPUTE}{kind}": ns for kind, ns in kinds.items() if ns}}


def cause_label(name: str, *, without_gpu: bool) -> str:
    if not name.startswith(COMPUTE):
        return PARTS[name].labels(without_gpu=without_gpu)[0]
    kind = name.removeprefix(COMPUTE)
    if kind.startswith(LIMIT):
        return f"kernels limited by {KERNEL_LIMITS[kind.removeprefix(LIMIT)].label}"
    if without_gpu:
        return f"ops: {_PHASES.get(kind, kind)}"
    return f"compute: {kind} kernels"


def part_of(cause: str) -> str:
    """The part of the step that a cause belongs to."""
    return "compute" if cause.startswith(COMPUTE) else cause

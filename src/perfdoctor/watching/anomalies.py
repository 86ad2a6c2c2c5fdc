"""What was found while a training runs: one record for each kind of trouble, with the numbers that prove it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

Kind = Literal["level", "drift", "slow-steps", "input", "memory", "behind", "throttled", "hang", "goes-on", "no-step"]
#: What made steps longer: which part of a step grew by most of what the step grew. `elsewhere`: neither input nor the
#: training thread; `not-input`: on a GPU, where a thread that works and one that waits look alike.
Cause = Literal["input", "host", "cores", "device", "not-input", "elsewhere"]
#: Kinds around which a window says more: a training that hangs makes no step that could be recorded.
RECORDED: tuple[Kind, ...] = ("level", "drift", "slow-steps", "input", "memory", "behind", "throttled")
#: The rules whose findings say why, where a window was opened for this kind; for the others it is what costs most.
ANSWERS: Mapping[str, tuple[str, ...]] = {
    "slow-steps": (
        "step-outliers", "one-long-step", "garbage-collection", "blocking-checkpoint", "recompilation", "long-pauses",
    ), "input": ("input-wait",),
    "memory": ("memory-growth",), "behind": ("rank-skew",), "throttled": ("device-throttling",),
}  # fmt: skip


class Anomaly(Struct, frozen=True):
    """`step`: with which it began, as far as that is known; `values`: times in ns, shares from 0 to 1, bytes, texts.

    `rank`: None where it is about the job. `seen_at`: the last step when it was found; `unix_ns`: when that was.
    """

    kind: Kind
    step: int
    seen_at: int
    unix_ns: int
    rank: int | None = None
    cause: Cause | None = None
    values: Mapping[str, float | int | str] = field(default_factory=dict)

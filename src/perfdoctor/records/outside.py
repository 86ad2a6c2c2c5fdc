"""What does whoever looks at a training only from outside know of it? Shares of samples, and no step."""

from __future__ import annotations

from msgspec import Struct


class OutsideShare(Struct, frozen=True):
    """What the main thread was doing in this share of its samples. `rule`: which rule says more about it, "" if none.

    `line`: the user's own line that is in most of these samples, and in which `line_share` of them.
    """

    name: str
    share: float
    samples: int
    rule: str = ""
    line: str = ""
    line_share: float = 0.0


class OutsideProcess(Struct, frozen=True):
    """One process. `cores`: how many it kept busy. `stands_still`: all its samples are of one stack, the last frame."""

    pid: int
    samples: int
    cores: float
    shares: tuple[OutsideShare, ...] = ()
    stands_still: str = ""


class OutsideView(Struct, frozen=True):
    """What was seen in `seconds`. `gpu_use`: mean use of each GPU that NVML has sampled, 0 to 1, by its number.

    `confidence` is always low: where steps begin and end is not known, and no saving can be predicted.
    """

    why: str
    seconds: float
    processes: tuple[OutsideProcess, ...] = ()
    gpu_use: dict[str, float] = {}
    confidence: str = "low"
    notes: tuple[str, ...] = ()

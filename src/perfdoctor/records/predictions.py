"""How long is a step after changes, and which work sets its length?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PredictedStep:
    """The step after one more fix or size, with all before it, in ns. `choice`: how far it goes, or how large.

    `samples`: how many times as many samples as recorded all ranks then work on in a step.
    """

    rule: str
    step_ns: int
    choice: str = ""
    samples: float = 1.0


@dataclass(frozen=True)
class Scaling:
    """From `recorded` ranks (0: not told) to those `asked` for. `efficiency`: low ≤ likely ≤ high.

    That is the step among the fewer ranks over the step among the more, each rank with the same work.
    """

    recorded: int
    asked: int
    efficiency: tuple[float, float, float]


@dataclass(frozen=True)
class Prediction:
    """The step with the named findings fixed together: ns (low ≤ likely ≤ high) and speedup (low ≤ likely ≤ high).

    `steps` is the way there from `recorded_ns`, one fix after the other: none longer than the one before, the last
    the likely `step_ns`. `replay_error`: by how much the replay misses the unchanged step, as a share of it; None where
    nothing was played and savings were subtracted. `asked`: is it the answer to a question, or what we find worth it?
    Where the run's size was asked for, a step has `samples` times as many samples and may be longer; `speedup` is that
    of samples a second over all ranks, and `scaling` what other numbers of ranks make of it.
    """

    fixed: tuple[str, ...]
    step_ns: tuple[int, int, int]
    speedup: tuple[float, float, float]
    recorded_ns: int
    steps: tuple[PredictedStep, ...]
    replay_error: float | None = None
    asked: bool = False
    samples: float = 1.0
    scaling: Scaling | None = None


@dataclass(frozen=True)
class PathPiece:
    """All of one name on the critical path: ns a step, and how often in a step."""

    kind: str
    name: str
    ns_per_step: float
    times_per_step: float


@dataclass(frozen=True)
class CriticalPath:
    """What the length of the step hangs on: `share` by kind (they sum to one), and the longest pieces first.

    `step_ns` is the step as it was played.
    """

    step_ns: float
    share: Mapping[str, float]
    pieces: tuple[PathPiece, ...]

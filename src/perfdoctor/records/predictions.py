"""How long is a step after changes, and which work determines its length?"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from perfdoctor.records.savings import Range


class PredictedStep(Struct, frozen=True):
    """The step in ns after one more fix or size, with all before it. `choice`: the degree of the fix, or the size.

    `samples`: samples of all ranks in a step, relative to the recorded number.
    """

    rule: str
    step_ns: int
    choice: str = ""
    samples: float = 1.0


class Scaling(Struct, frozen=True):
    """From `recorded` ranks (None: unknown) to those `asked` for, and the efficiency there.

    Weak scaling: the step with the fewer ranks over the step with more, each rank with the same work.
    """

    recorded: int | None = field(name="recorded_ranks")
    asked: int = field(name="asked_ranks")
    efficiency: Range[float]


class Prediction(Struct, frozen=True, kw_only=True):
    """The step with the named findings fixed together, in ns, and the speedup.

    `steps` lead there from `now_ns`, one fix after the other: none is longer than the one before, the last is the
    likely `step_ns`. `replay_error`: by how much the replay misses the unchanged step, as a share of it; None where
    nothing was replayed and savings were subtracted. `asked`: the user asked for it; otherwise all worthwhile fixes.
    If another size was asked for, a step has `samples` times the recorded samples and may be longer; `speedup` is then
    that of samples per second over all ranks, and `scaling` the effect of another number of ranks. `unrecorded_ns`: the
    step without a recorder, of which all other numbers are then; None where it is not known, or as long.
    """

    fixed: tuple[str, ...]
    step_ns: Range[int]
    speedup: Range[float]
    recorded_ns: int = field(name="recorded_step_ns")
    unrecorded_ns: int | None = field(default=None, name="unrecorded_step_ns")
    steps: tuple[PredictedStep, ...]
    replay_error: float | None = None
    asked: bool = False
    samples: float = 1.0
    scaling: Scaling | None = None

    def __repr__(self) -> str:
        low, likely, high = self.step_ns
        asked = ", ".join(f"{step.rule}={step.choice}" if step.choice else step.rule for step in self.steps)
        return f"<Prediction with {asked or 'nothing'}: {self.now_ns:,} -> {likely:,} ns ({low:,} to {high:,})>"

    @property
    def now_ns(self) -> int:
        """The step that the fixes shorten, in ns."""
        return self.recorded_ns if self.unrecorded_ns is None else self.unrecorded_ns


class PathPiece(Struct, frozen=True):
    """All work of one name on the critical path: ns a step, and how often in a step."""

    kind: str
    name: str
    ns_per_step: float
    times_per_step: float


class CriticalPath(Struct, frozen=True):
    """The work that determines the length of the step: `share` by kind (they sum to one), and the longest pieces first.

    `step_ns` is the length of the replayed step.
    """

    step_ns: float
    share: Mapping[str, float]
    pieces: tuple[PathPiece, ...]

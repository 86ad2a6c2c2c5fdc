"""Where did the time of a rank and device go, how long are its steps and kernels, and what did recording stretch?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from perfdoctor.model.steps import Confidence, FoundBy
from perfdoctor.vocabulary.parts import IDLE_CAUSES, PARTS

#: Steps of one training differ by some per cent from each other anyway: a smaller difference is no stretch.
NOTABLE_STRETCH = 1.1
#: More of such a step is recording than training.
MOSTLY_RECORDING = 2.0
_MOST_OF_IT = 0.5


class TimeSplit(Struct, frozen=True):
    """The parts of the window of one rank and device, in ns; they sum exactly to it (see `model/place.py`).

    `device` is None on a run without a GPU, where the training thread stands for the device. `step_ns` is None where no
    steps were found. `window_start_ns` is on the recording's own clock, so that the numbers can be recomputed from it.
    `compute_by_phase_ns`: on a run without a GPU compute by OP_PHASES; empty else.
    """

    rank: int
    device: int | None
    window_start_ns: int
    window_ns: int
    step_ns: int | None
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int
    communication_ns: int
    hidden_communication_ns: int
    copy_ns: int
    kernel_count: int
    idle_causes_ns: Mapping[str, int]
    compute_by_family_ns: Mapping[str, int]
    matmul_ns_by_math_path: Mapping[str, int]
    compute_by_phase_ns: Mapping[str, int] = field(default_factory=dict)


def parts_ns(splits: Iterable[TimeSplit]) -> dict[str, int]:
    """The windows of these ranks and devices by part, in ns; they sum to the windows exactly."""
    found = dict.fromkeys(PARTS, 0)
    for split in splits:
        found["compute"] += split.compute_ns
        found["exposed_communication"] += split.exposed_communication_ns
        found["exposed_copy"] += split.exposed_copy_ns
        for cause in IDLE_CAUSES:
            found[cause] += split.idle_causes_ns.get(cause, 0)
    return found


class MeanTime(Struct, frozen=True):
    """Means over some ranks, in ns a step (of the window, where no steps were found); the parts sum to the step.

    `first_rank`: the lowest of them.
    """

    first_rank: int
    ranks: int
    step_ns: int
    compute_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int


class JobTime(Struct, frozen=True):
    """The time of a job of which some ranks were read in full: all ranks, and those of each node, where it is known."""

    mean: MeanTime
    nodes: tuple[MeanTime, ...]


class StepStats(Struct, frozen=True):
    """How the steps were found and how long they are; times are 0 where none were found.

    `marked_by`: as `Timeline.steps_marked_by`, where those marks are the steps. `durations_ns`: each step used, in
    order, as the mean of the ranks, which step together; what comparisons take their intervals from.
    """

    count: int = 0
    used: int = 0
    median_ns: int = 0
    p10_ns: int = 0
    p90_ns: int = 0
    found_by: FoundBy = "none"
    confidence: Confidence = "low"
    marked_by: str = ""
    durations_ns: tuple[int, ...] = ()


class KernelRow(Struct, frozen=True):
    """One line of the kernel table: all executions of one name in the analysed windows."""

    name: str
    family: str
    math_path: str
    count: int
    total_ns: int
    mean_ns: int


class RealTime(Struct, frozen=True):
    """The mean step as recorded, and without a recorder, in ns.

    `measured_ns`: the median of the steps that were timed beside the recording, mean of the ranks. `event_ns`: what
    recording one op, range or call cost the host, `events_per_step` of which were recorded. `stretch_by_part`:
    recorded over unrecorded time of each part that occurs; infinite where nothing of it is left. `has_stacks`: were
    Python's functions recorded? `by_others_ns`: so much of what is longer others' use of the cores can explain.
    `flushes_ns`: for so long the step waited for the profiler.
    """

    recorded_ns: int
    unrecorded_ns: int
    measured_ns: int
    event_ns: float = 0.0
    events_per_step: float = 0.0
    stretch_by_part: Mapping[str, float] = field(default_factory=dict)
    has_stacks: bool = False
    by_others_ns: int = 0
    flushes_ns: int = 0

    @property
    def stretch(self) -> float:
        """Recorded over unrecorded; 1.0 where there is no step."""
        return max(self.recorded_ns / self.unrecorded_ns, 1.0) if self.unrecorded_ns else 1.0

    @property
    def recorders_stretch(self) -> float:
        """The stretch without what others' use of the cores can explain."""
        longer_ns = self.recorded_ns - self.by_others_ns
        return max(longer_ns / self.unrecorded_ns, 1.0) if self.unrecorded_ns else 1.0

    @property
    def is_recorders(self) -> bool:
        """Is the step notably longer, and surely by recording?"""
        return self.recorders_stretch > NOTABLE_STRETCH

    @property
    def explained_ns(self) -> float:
        """What recording its ops, calls and ranges cost a step, and the profiler's flushes in it, in ns."""
        return self.event_ns * self.events_per_step + self.flushes_ns

    @property
    def is_explained(self) -> bool:
        """Is that at least half of what is longer, but for what others' use of the cores can explain?"""
        return self.explained_ns >= _MOST_OF_IT * (self.recorded_ns - self.unrecorded_ns - self.by_others_ns)

    @property
    def notable_parts(self) -> tuple[tuple[str, float], ...]:
        """The parts that recording made notably longer, and how many times as long, in the step's order."""
        return tuple((part, by) for part, by in self.stretch_by_part.items() if by > NOTABLE_STRETCH)

    @property
    def is_notable(self) -> bool:
        return self.stretch > NOTABLE_STRETCH

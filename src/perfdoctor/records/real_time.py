"""How long is a step that nobody records, and which of its parts did recording stretch?"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

#: Steps of one training differ by some per cent from each other anyway: a smaller difference is no stretch.
NOTABLE_STRETCH = 1.1
#: More of such a step is recording than training.
MOSTLY_RECORDING = 2.0


class RealTime(Struct, frozen=True):
    """The mean step as recorded, and without a recorder, in ns.

    `measured_ns`: the median of the steps that were timed beside the recording, mean of the ranks. `event_ns`: what
    recording one op, range or call cost the host, `events_per_step` of which were recorded. `stretch_by_part`:
    recorded over unrecorded time of each part that occurs; infinite where nothing of it is left. `has_stacks`: were
    Python's functions recorded?
    """

    recorded_ns: int
    unrecorded_ns: int
    measured_ns: int
    event_ns: float = 0.0
    events_per_step: float = 0.0
    stretch_by_part: Mapping[str, float] = field(default_factory=dict)
    has_stacks: bool = False

    @property
    def stretch(self) -> float:
        """Recorded over unrecorded; 1.0 where there is no step."""
        return max(self.recorded_ns / self.unrecorded_ns, 1.0) if self.unrecorded_ns else 1.0

    @property
    def notable_parts(self) -> tuple[tuple[str, float], ...]:
        """The parts that recording made notably longer, and how many times as long, in the step's order."""
        return tuple((part, by) for part, by in self.stretch_by_part.items() if by > NOTABLE_STRETCH)

    @property
    def is_notable(self) -> bool:
        return self.stretch > NOTABLE_STRETCH

"""What is there to look at? Every device of every rank, in its steady steps.

`Run` is what a detector gets: the Timeline and its places, each with its window and accounting computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from perfdoctor.model.cache import Keeps, once_per_run
from perfdoctor.model.place import Place
from perfdoctor.model.selection import WHOLE_RECORDING, Selection
from perfdoctor.model.timeline import Timeline
from perfdoctor.system.memory import give_back

#: A recording of more rows is long: what is worked out of it takes about 100 bytes a row, more than all else. And for
#: how many rules or pages a result is kept that none of them asks for.
_LONG_ROWS, _ROUNDS = 2_000_000, 2


class Run(Keeps, frozen=True):
    """A recording prepared for detectors. `places` is empty where nothing was recorded that could be accounted for."""

    timeline: Timeline
    places: tuple[Place, ...]
    #: The part of the recording that is analysed: the places are narrowed to it.
    selection: Selection = WHOLE_RECORDING
    #: All ranks of the job by their summaries (`scale/`), where `places` are only those that were read in full.
    summaries: Run | None = None
    #: For how many places of the job each of `places` stands; () where every one of them was read in full.
    stands_for: tuple[int, ...] = ()

    @property
    def job(self) -> Run:
        """All ranks recorded, for questions about several of them: what a place of it answers, `ReducedPlace` says."""
        return self.summaries or self

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks recorded, ascending, also those that were not read in full."""
        return self.job.timeline.ranks

    @property
    def is_long(self) -> bool:
        return sum(map(len, self.timeline.frames.values())) > _LONG_ROWS

    def next_round(self, rounds: int = _ROUNDS) -> None:
        """Between two rules, or two pages: of a long recording, drop results that none of the last ones asked for.

        Those of the whole run are few, and may have taken long: they stay.
        """
        if self.is_long:
            for kept in (self.timeline.kept, *(place.kept for place in self.places)):
                kept.next_round(rounds)
            give_back()

    def next_phase(self) -> None:
        """What follows asks for other results: of a long recording, drop all."""
        if self.is_long:
            self.kept.next_round(1)
            for place in self.places:
                place.forget()
            self.next_round(1)

    @property
    def per_step(self) -> bool:
        """Are numbers per step? Only if steps were found on every place."""
        return bool(self.places) and all(place.steps.used for place in self.places)

    @property
    def repeats(self) -> bool:
        """Are steps known of which there are several? Of a single one, what comes once is not known apart."""
        return self.per_step and any(place.steps.used > 1 or place.steps.steady for place in self.places)

    @property
    def whole_steps(self) -> bool:
        """Are they steps of the training, and no executions of a range?"""
        return self.per_step and not self.selection.range_name

    @property
    def step_ns(self) -> int:
        """The mean step over all places of the job (the mean window where no steps were found), in ns."""
        return self.job.mean_window_ns()

    @once_per_run
    def mean_window_ns(self) -> int:
        return self.mean(lambda place: place.window_ns)

    def mean(self, quantity_ns: Callable[[Place], float]) -> int:
        """A quantity per step, averaged over all places: ranks of one job step together, so none counts more."""
        if not self.places:
            return 0
        return round(self.average([quantity_ns(place) / place.units for place in self.places]))

    def average(self, each: Sequence[float]) -> float:
        """The mean of one number a place over all places of the job, of which some stand for several."""
        return float(np.average(each, weights=self.stands_for or None))

    def share(self, quantity_ns: Callable[[Place], float]) -> float:
        """The same as a share of the step."""
        return self.mean(quantity_ns) / self.step_ns if self.step_ns else 0.0

    def worst(self, quantity_ns: Callable[[Place], float]) -> Place:
        """The place where the quantity takes the largest share."""
        return max(self.places, key=lambda place: place.share(quantity_ns(place)))

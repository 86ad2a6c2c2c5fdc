"""What is there to look at? Every device of every rank, in its steady steps.

`Run` is what a detector gets: the Timeline and its places, each with its window and accounting computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct

from perfdoctor.model.cache import Keeps, once_per_job
from perfdoctor.model.place import JobPlace, Place
from perfdoctor.model.timeline import Timeline
from perfdoctor.patterns import regex
from perfdoctor.system import forked
from perfdoctor.system.memory import give_back

Asked_co = TypeVar("Asked_co", bound=JobPlace, covariant=True)
Result = TypeVar("Result")

#: A recording of more rows is long: what is worked out of it takes about 100 bytes a row, more than all else. And for
#: how many rules or pages a result is kept that none of them asks for.
_LONG_ROWS, _ROUNDS = 2_000_000, 2
#: A diagnosis of 23,000 rows takes two processes as long as one, one of 47,000 rows 4 % less, one of 150,000 17 %.
_WORTH_CHILDREN = 50_000
#: Each child holds what it works out by itself, about so many bytes for each row of the run; and all of them are to
#: hold no more than so many, so a very long run has none.
_CHILD_BYTES_A_ROW, _CHILDREN_BYTES = 45, 256 << 20

_SAMPLES = ("gpu_counters", "other_gpu_counters")

_STEPS = regex(r"(\d{1,9})(?:\.\.(\d{1,9}))?")


class Selection(Struct, frozen=True):
    """The part of a recording that is analysed.

    `range_name`: the executions of this user range, "" for everything. `steps`: first and last of the steady steps,
    from 1; None for all of them.
    """

    range_name: str = ""
    steps: tuple[int, int] | None = None


WHOLE_RECORDING = Selection()


class OddStep(Struct, frozen=True):
    """A step that was left out, far longer than all others: its number among the steady ones, from 1, of `of`.
    `duration_ns` against `usual_ns`, the median of the others, both means over all places; and the `part` that grew
    most in it, by `part_excess_ns` where it grew most.
    """

    number: int
    of: int
    duration_ns: int
    usual_ns: int
    part: str
    part_excess_ns: int


def steps_named(text: str) -> tuple[int, int] | None:
    """First and last of `3..5`, or of `3`; None where the text names no steps."""
    found = _STEPS.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    return (first, last) if 1 <= first <= last else None


class Job(Keeps, Generic[Asked_co], frozen=True):
    """Places of a job, each with what can be asked of all its ranks."""

    timeline: Timeline
    places: tuple[Asked_co, ...]
    #: The part of the recording that is analysed: the places are narrowed to it.
    selection: Selection = WHOLE_RECORDING
    #: For how many places of the job each of `places` stands; () where every one of them stands for itself.
    stands_for: tuple[int, ...] = ()

    @property
    def job(self) -> Job[JobPlace]:
        """The same places, for all ranks of the job."""
        return self

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks recorded, ascending, also those that were not read in full."""
        return self.job.timeline.ranks

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

    @once_per_job
    def mean_window_ns(self) -> int:
        return self.mean(attrgetter("window_ns"))

    def mean(self, quantity_ns: Callable[[Asked_co], float]) -> int:
        """A quantity per step, averaged over all places: ranks of one job step together, so none counts more.

        Args:
            quantity_ns: The quantity of one place's whole window, in ns.

        Returns:
            The mean of a step, in ns; 0 without places.
        """
        if not self.places:
            return 0
        return round(self.average([quantity_ns(place) / place.units for place in self.places]))

    def average(self, each: Sequence[float]) -> float:
        """The mean of one number a place over all places of the job, of which some stand for several."""
        return float(np.average(each, weights=self.stands_for or None))

    def share(self, quantity_ns: Callable[[Asked_co], float]) -> float:
        """A quantity as a share of the step, averaged over all places.

        Args:
            quantity_ns: The quantity of one place's whole window, in ns.

        Returns:
            The share, from 0 to 1.
        """
        return self.mean(quantity_ns) / self.step_ns if self.step_ns else 0.0

    def worst(self, quantity_ns: Callable[[Asked_co], float]) -> Asked_co:
        """The place where a quantity takes the largest share.

        Args:
            quantity_ns: The quantity of one place's whole window, in ns.

        Returns:
            The place.
        """
        return self.places[int(np.argmax([place.share(quantity_ns(place)) for place in self.places]))]


class Run(Job[Place], frozen=True):
    """A recording prepared for detectors. `places` is empty where nothing was recorded that could be accounted for."""

    #: All ranks of the job by their summaries (`scale/`), where `places` are only those that were read in full.
    summaries: Job[JobPlace] | None = None
    #: A step that is in no window, since only what comes once made it so long.
    odd_step: OddStep | None = None
    #: Of the steady steps, how many hold what does not come in every step, and are in no window.
    paused_steps: int = 0

    @property
    def job(self) -> Job[JobPlace]:
        """All ranks recorded, for questions about several of them."""
        return self.summaries or self

    @property
    def is_long(self) -> bool:
        return self.rows > _LONG_ROWS

    @property
    def rows(self) -> int:
        """How many rows all signals have together, without the samples of counters: next to nothing is kept of one."""
        return sum(len(rows) for signal, rows in self.timeline.frames.items() if signal not in _SAMPLES)

    def several(self, functions: Sequence[Callable[[], Result]]) -> list[Result]:
        """What each function about the run returns, in their order; by several processes where that is sooner.

        The longest should stand first. What a function keeps with the run may be kept in another process. A long
        recording keeps nothing of before, and between two functions only what one of the last ones has asked for.
        """

        def asked(function: Callable[[], Result]) -> Result:
            if self.is_long:  # results of the whole run are few, and may have taken long: they stay
                for kept in (self.timeline.kept, *(place.kept for place in self.places)):
                    kept.next_round(_ROUNDS)
                give_back()
            return function()

        if self.is_long:
            for kept in (self.kept, self.timeline.kept):
                kept.next_round(1)
            for place in self.places:
                place.forget()
            give_back()
        return forked.several([partial(asked, function) for function in functions], most=self._children())

    def _children(self) -> int:
        """How many processes more than this one are worth while."""
        rows = self.rows
        return _CHILDREN_BYTES // (_CHILD_BYTES_A_ROW * rows) if rows >= max(_WORTH_CHILDREN, 1) else 0

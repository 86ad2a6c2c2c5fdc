"""What did the counters of a place's GPU measure, on the clock of its kernels?

That the samples are of this GPU, and on this clock, is measured: GR Active must follow the kernels. Samples that do not
are left out; a shift of the clocks that explains clearly more is taken out of them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from perfdoctor.metrics.counters.coarse import dcgm_rows
from perfdoctor.model.cache import once_per_place
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.place import Place
from perfdoctor.model.timeline import Floats, Frame, Ints
from perfdoctor.vocabulary.gpu_counters import COUNTERS

#: A mean of fewer samples says nothing: of one counter whose samples spread by 40 points it is wrong by 7.
LEAST_SAMPLES = 30
#: Shifts that are tried, in usual samples; 16 are 1.6 ms at the usual 10,000 samples a second.
_MOST_SHIFT, _STEPS_A_SAMPLE = 16, 4
#: Samples that decide on the shift.
_MOST_TRIED = 5_000
#: A GPU of which no sample is as active as this does nothing.
_QUIET = 0.1
#: A shift of less than half a sample, or one with which GR Active follows kernels hardly better, changes no mean.
_LEAST_SHIFT, _CLEARLY_BETTER = 0.5, 0.02
#: Correlations that agree in so many digits are about equal.
_DIGITS = 2
#: While kernels run, GR Active is 100 %; a GPU that shows less than half of the kernels' time is another one.
_LEAST_ACTIVE = 0.5
#: Kernels and activity that both change, and not together, are of two GPUs. They are at 0.998 on one of an A100.
_LEAST_AGREEMENT, _CHANGES = 0.3, 0.1


class CounterSamples(Struct, frozen=True, dict=True):
    """The samples of one place's GPU, in order of their times; `shift_ns` was added to them.

    `doubt`: why they cannot be used: few, clock (on none of the recording), other (another GPU's); "" for none.
    """

    rows: Frame
    shift_ns: int = 0
    doubt: str = ""

    @property
    def starts(self) -> Ints:
        return self.rows.start_ns

    @property
    def ends(self) -> Ints:
        return self.rows.end_ns

    @cached_property
    def recorded(self) -> tuple[str, ...]:
        """The columns of counters of which any value is known."""
        return tuple(column for column in COUNTERS if not np.isnan(self.rows.floats(column)).all())

    @cached_property
    def spellings(self) -> dict[str, str]:
        """What the recording calls each column."""
        lines = self.rows.text("spellings")[0].splitlines() if len(self.rows) else []
        return {column: name for column, _, name in (line.partition(": ") for line in lines)}

    @property
    def usual_ns(self) -> int:
        """How long a sample usually lasts."""
        return int(np.median(self.ends - self.starts)) if len(self.rows) else 0

    def covered(self, when: Intervals) -> Floats:
        """How much of each sample lies in `when`, from 0 to 1."""
        length = np.maximum(self.ends - self.starts, 1)
        shares: Floats = when.overlap_ns(self.starts, self.ends) / length
        return shares


@once_per_place
def recorded_samples(place: Place) -> CounterSamples:
    """The samples of this place's GPU in the whole recording; with a doubt, or none, where they cannot be used."""
    rows = place.recorded("gpu_counters") if place.device is not None else place.timeline["gpu_counters"].take([])
    is_coarse = not len(rows) and place.device is not None and len(place.timeline["device_samples"]) > 0
    if is_coarse:
        rows, is_on_clock = dcgm_rows(place)
        if len(rows) and not is_on_clock:
            return CounterSamples(rows, doubt="clock")
    found = CounterSamples(rows)
    if len(rows) < LEAST_SAMPLES:
        return CounterSamples(rows, doubt="few" if len(rows) else "")
    busy = place.recorded("kernels").intervals | place.recorded("collectives").intervals
    activity = rows.floats("gr_active_share")
    if not busy or np.isnan(activity).all():
        return found
    # Of samples as long as steps no shift could be seen.
    shift = 0 if is_coarse else _shift_ns(CounterSamples(rows.take(_around(found, busy))), busy)
    found = CounterSamples(rows.shifted(shift), shift)
    between = slice(*np.searchsorted(found.starts, (busy.starts[0], busy.ends[-1])).tolist())
    same = _follow(CounterSamples(found.rows.take(between)), busy, activity[between])
    return found if same else CounterSamples(rows, shift, doubt="other")


def usable(place: Place) -> CounterSamples | None:
    """The samples of this place's GPU; None where there are none, too few, or another GPU's."""
    found = recorded_samples(place)
    return found if len(found.rows) >= LEAST_SAMPLES and not found.doubt else None


@once_per_place
def tell_anything(place: Place) -> bool:
    """Do enough samples of the window have a value that is known?"""
    found = usable(place)
    if found is None or not found.recorded:
        return False
    return int((place.window.overlap_ns(found.starts, found.ends) > 0).sum()) >= LEAST_SAMPLES


def _around(found: CounterSamples, busy: Intervals) -> slice:
    """The samples that decide on the shift: from the first kernel to the last, and as far around as none leads further.

    Where the GPU was at work before or behind, that was not recorded, and the edge shows nothing: there they begin or
    end so far inside that no shift leads out.
    """
    activity, most = found.rows.floats("gr_active_share"), _MOST_SHIFT
    first, last = np.searchsorted(found.starts, (busy.starts[0], busy.ends[-1])).tolist()
    begins, ends = (
        bool((edge < _QUIET).any()) and not (edge >= _QUIET).any()
        for edge in (activity[max(first - 2 * most, 0) : max(first - most, 0)], activity[last + most : last + 2 * most])
    )
    start, stop = first - most if begins else first + most, last + most if ends else last - most
    if begins or not ends:
        return slice(start, min(stop, start + _MOST_TRIED))
    return slice(max(start, stop - _MOST_TRIED), stop)


def _shift_ns(found: CounterSamples, busy: Intervals) -> int:
    """What has to be added to the samples' times, so that GR Active follows the kernels best; 0 if it does already."""
    activity, usual = found.rows.floats("gr_active_share"), found.usual_ns

    def agreement(samples: float) -> float:
        shift = round(samples * usual)
        return _correlation(busy.overlap_ns(found.starts + shift, found.ends + shift), activity)

    if agreement(0) > 1 - _CLEARLY_BETTER:
        return 0
    most = _MOST_SHIFT * _STEPS_A_SAMPLE
    tried = sorted((step / _STEPS_A_SAMPLE for step in range(-most, most + 1)), key=abs)
    # Steps are alike, so that a shift by a whole step is hardly worse: of about equal ones the smallest.
    best = max(tried, key=lambda each: round(agreement(each), _DIGITS))
    matters = abs(best) >= _LEAST_SHIFT and agreement(best) > agreement(0) + _CLEARLY_BETTER
    return round(best * usual) if matters else 0


def _follow(found: CounterSamples, busy: Intervals, activity: Floats) -> bool:
    """Is the GPU active while our kernels run, and do both change together where both change?"""
    covered, known = found.covered(busy), ~np.isnan(activity)
    if not covered[known].any():  # sampled before or after all kernels
        return True
    if activity[known].sum() < _LEAST_ACTIVE * covered[known].sum():
        return False
    changes = min(covered[known].std(), activity[known].std()) > _CHANGES
    return not changes or _correlation(covered, activity) >= _LEAST_AGREEMENT


def _correlation(first: Floats | Ints, second: Floats) -> float:
    """Pearson's, of the samples known of both; 0 where one of them does not change."""
    known = ~np.isnan(second)
    if not known.any():
        return 0.0
    one, other = first[known] - first[known].mean(), second[known] - second[known].mean()
    spread = float(np.sqrt((one * one).sum() * (other * other).sum()))
    return float((one * other).sum()) / spread if spread else 0.0

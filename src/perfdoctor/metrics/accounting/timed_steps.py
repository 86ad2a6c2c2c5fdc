"""Which of the steps that were only timed are those of the analysis, and which of them are as steps are for long?

Recorded steps are few, one behind the other, and longer than others. The recorder times every step of the run by the
host's clock besides: what compares runs takes these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfdoctor.model.columns import Floats
from perfdoctor.model.run import Run
from perfdoctor.system.run_folder import TimedSteps

#: Some thousands of steps say all that one run can say: beyond, runs differ by more than the mean of their steps.
MOST = 4_000
#: The recorded steps were timed as well: where the two differ by more, other steps were timed than are analysed.
_OTHER_STEPS = 1.5
#: With so many behind the recorded ones, those before count no more: programs warm up, and a profiler that was there
#: leaves its process with another memory allocator (agent's pace.py).
FEWEST_BEHIND = 20
#: Steps are held against each other in so many at once (K. White, Simulation 69, 1997: MSER-5).
_AT_ONCE = 5


def timed_steps(run: Run) -> TimedSteps | None:
    """The last steps that the first rank timed; None where it timed none, or other steps than are analysed."""
    known = run.timeline.timed_steps
    place = run.places[0] if run.places else None
    if place is None or not run.whole_steps or place.rank not in known:
        return None
    timed = known[place.rank]
    both = timed.lengths_ns[slice(*timed.recorded)]
    if both and place.steps.durations_ns.size:
        ratio = float(np.median(both)) / max(float(np.median(place.steps.durations_ns)), 1.0)
        if not 1 / _OTHER_STEPS <= ratio <= _OTHER_STEPS:
            return None
    return timed.last(MOST)


def steady(lengths_ns: Sequence[int], recorded: tuple[int, int] = (0, 0)) -> Floats:
    """The lengths in ns, in order, of the steps that nobody recorded, without those in which the program warms up."""
    lengths = np.asarray(lengths_ns, np.float64)
    first, behind = recorded
    after = warmed_up(lengths[behind:])
    if first == 0 or after.size >= FEWEST_BEHIND:
        return after
    return np.concatenate((warmed_up(lengths[:first]), after))


def warmed_up(lengths_ns: Floats) -> Floats:
    """The steps without the first ones, as long as these make the mean less certain.

    Of all cuts in the first half that one counts, at which the variance of what is left over its number is least (K.
    White, Simulation 69, 1997), of the means of five steps each. Fewer than ten steps lose the first one alone.
    """
    if lengths_ns.size < 2 * _AT_ONCE:
        return lengths_ns[1:]
    whole = lengths_ns.size // _AT_ONCE
    means = lengths_ns[lengths_ns.size - whole * _AT_ONCE :].reshape(whole, _AT_ONCE).mean(axis=1)
    means /= max(means.mean(), 1.0)
    behind = np.arange(whole, 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means**2))
    error = (squares - sums**2 / behind) / behind**2
    cut = int(np.argmin(error[: max(whole // 2, 1)]))
    return lengths_ns[max(lengths_ns.size - (whole - cut) * _AT_ONCE, 1) :]

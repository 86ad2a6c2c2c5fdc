"""Inside which function of the user's own code was work launched, and in which did a thread spend its time?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from perfdoctor.model.cache import once_per_timeline
from perfdoctor.model.host_rows import Nested, Thread, nested
from perfdoctor.model.intervals import Intervals
from perfdoctor.model.launches import Launches
from perfdoctor.model.timeline import UNKNOWN, Ints, Timeline
from perfdoctor.vocabulary.names.python_code import is_user_function


@once_per_timeline
def own_functions(timeline: Timeline, rank: int) -> Nested:
    """The functions of the user's own code on one rank, each with the line on which it begins."""
    functions = timeline["functions"]
    numbers = np.flatnonzero((functions["rank"] == rank) & functions.name.where(is_user_function))
    return nested(functions.take(numbers), numbers)


def own_function(launched: Launches) -> Ints:
    """The innermost own function around each launch, as a row of `own_functions`.

    A thread without functions of its own (autograd's) works for the one that has most: what stands there and waits,
    mostly the function that calls `backward()`, is what asked.
    """
    functions = own_functions(launched.place.timeline, launched.place.rank)
    if not functions.threads:
        return np.full(launched.rows.size, UNKNOWN, dtype=np.int64)
    process, thread = launched.process.copy(), launched.thread.copy()
    has_own = np.zeros(thread.size, dtype=bool)
    for own_process, own_thread in functions.threads:
        has_own |= (process == own_process) & (thread == own_thread)
    process[~has_own], thread[~has_own] = _main_thread(functions)
    found = functions.innermost(launched.at_ns, process, thread)
    return np.where(launched.known, found, UNKNOWN)


def _main_thread(functions: Nested) -> Thread:
    """The thread that spends most time in own functions."""
    took = functions.rows.duration_ns
    return max(functions.threads, key=lambda each: int(took[functions.threads[each]].sum()))


def time_in_functions(timeline: Timeline, when: Iterable[tuple[int, Intervals]]) -> Counter[str]:
    """Ns of these times, by rank, that its main thread spent in each own function, the innermost one."""
    found: Counter[str] = Counter()
    for rank, times in when:
        functions = own_functions(timeline, rank)
        if not functions.threads or not times:
            continue
        took = functions.own(times.overlap_ns(functions.rows.start_ns, functions.rows.end_ns))
        main = functions.threads[_main_thread(functions)]
        for row in main[took[main] > 0].tolist():
            found[functions.rows.name[row]] += int(took[row])
    return found

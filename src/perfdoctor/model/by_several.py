"""Are the rows of a run so many that several processes look at them sooner than one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from perfdoctor.model.run import Run
from perfdoctor.system import beside

Result = TypeVar("Result")

#: A diagnosis of 23,000 rows takes two processes as long as one, one of 47,000 rows 4 % less, one of 150,000 17 %.
_WORTH_PROCESSES = 50_000


def is_worth_processes(run: Run) -> bool:
    return sum(map(len, run.timeline.frames.values())) >= _WORTH_PROCESSES and beside.extra_processes() > 0


def each(functions: Sequence[Callable[[], Result]], run: Run) -> list[Result]:
    """What each of the functions about this run returns, worked out by several processes where that is sooner.

    As `beside.each`: the longest should stand first, and what a function keeps with the run may be kept elsewhere.
    """
    return beside.each(functions) if is_worth_processes(run) else [function() for function in functions]

"""How does `perfdoctor compare --rerun` make its runs? Both commands in turn, and in turn which of them is first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfdoctor.cli import say
from perfdoctor.errors import PerfdoctorError

if TYPE_CHECKING:
    from perfdoctor.comparison.compare import Reruns
    from perfdoctor.comparison.records import StepSample
    from perfdoctor.recording.rerun import Rerunnable

#: One step has no mean of its own.
_FEWEST = 2


def reruns_of(before: str, after: str, times: int, *, quiet: bool) -> Reruns:
    """Steps of `times` runs of each of two run folders. Raises PerfdoctorError where one cannot be run again."""
    from perfdoctor.recording.rerun import refuse_same, rerunnable

    sides = tuple(rerunnable(name, Path(name)) for name in (before, after))
    refuse_same(*sides)
    _say(f"{2 * times} runs; what the programs write they write again, what they print is not shown", quiet=quiet)
    found: tuple[list[StepSample], list[StepSample]] = ([], [])
    for number in range(times):
        for side in (0, 1) if number % 2 == 0 else (1, 0):  # a machine that gets faster or slower favours neither
            found[side].append(_sample(sides[side]))
            mean_ms = found[side][-1].steps_ns.mean() / 1e6
            _say(f"run {sum(map(len, found))}: {sides[side].name}, a mean step of {mean_ms:.3g} ms", quiet=quiet)
    return found


def _sample(run: Rerunnable) -> StepSample:
    from perfdoctor.comparison.records import StepSample
    from perfdoctor.metrics.accounting.timed_steps import steady
    from perfdoctor.recording.rerun import again

    timed = again(run)
    steps_ns = steady(timed.lengths_ns, timed.recorded)
    if steps_ns.size < _FEWEST:
        raise PerfdoctorError(
            f"{run.name} made {len(timed.lengths_ns)} steps when it was run again", do="Let it make 20 or more."
        )
    return StepSample(steps_ns)


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        say.note(f"{text}")

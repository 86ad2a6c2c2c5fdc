"""On which lines of own code was the training thread, going by samples, and was the device idle meanwhile?

A sample says where the thread was, not what cost time there. It stands for the interval at which was sampled; a look
that came late, because a line held Python's lock, is in the recording as often as others were missed. How far a share
may be off by chance is the binomial 95 % range (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927, p. 209).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdoctor.findings import Rows
from perfdoctor.metrics import grouping
from perfdoctor.metrics.breakdown import Place
from perfdoctor.metrics.grouping import Floats
from perfdoctor.metrics.launching import host_window
from perfdoctor.metrics.run import Run
from perfdoctor.timeline.intervals import Intervals
from perfdoctor.timeline.model import Frame, Ints, Mask, Text

#: Of 4 samples, found by chance at a steady rate, the 95 % range is as wide as the number itself (1.96 / √4 = 98 %).
FEWEST_SAMPLES = 5
_Z_OF_95_PERCENT = 1.96


@dataclass(frozen=True)
class SampledLines:
    """One element a line of own code with enough samples, those with most idle first, then those with most time.

    Times are of a step of an average rank, idle of an average device. `low_ns` to `high_ns`: the range of `time_ns`.
    `share`: of all that was sampled, lines of libraries alone included. `callers`: from where it was called most often.
    `idle_ns`: samples at which the device was idle, NaN without one; `cause`: the cause of most of it, "" without idle.
    `covered_share`: how much of the windows the samples stand for. `in_all`: samples in the windows, of any line.
    """

    lines: tuple[str, ...]
    callers: tuple[str, ...]
    count: Ints
    share: Floats
    time_ns: Floats
    low_ns: Floats
    high_ns: Floats
    idle_ns: Floats
    cause: tuple[str, ...]
    interval_ns: int
    covered_share: float
    in_all: int

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class _Samples:
    """Samples of one rank. `line`: one place in the values of `rows.name` a sample."""

    rows: Frame
    line: Ints

    def within(self, pieces: Intervals) -> Mask:
        """One bool a sample: was it taken in one of the pieces?"""
        at = self.rows.start_ns
        return pieces.overlap_ns(at, at + 1) > 0

    def weights_ns(self, pieces: Intervals) -> Ints:
        """The time that each sample stands for, 0 for those outside the pieces."""
        return np.where(self.within(pieces), self.rows["interval_ns"], 0)


def _of_rank(place: Place) -> _Samples:
    rows = place.timeline["line_samples"].of(rank=place.rank)
    return _Samples(rows, rows.name.codes.astype(np.int64))


def sampled_lines(run: Run) -> SampledLines | None:
    """None where no sample of a line lies in the windows looked at."""
    places = [place for place in run.places if len(place.timeline["line_samples"].of(rank=place.rank))]
    names = run.timeline["line_samples"].name.values
    counted = _counted(list({place.rank: place for place in reversed(places)}.values()), len(names))
    if not counted.count.any():
        return None
    share = counted.weight_ns / counted.weight_ns.sum()
    low, high = _range(share, int(counted.count.sum()))
    idle, cause = _idle(places, len(names))
    named = np.array([bool(name) for name in names])
    shown = np.flatnonzero(named & (counted.count >= FEWEST_SAMPLES))
    shown = shown[np.lexsort((-counted.time_ns[shown], -np.nan_to_num(idle[shown])))]
    return SampledLines(
        lines=tuple(names[at] for at in shown.tolist()),
        callers=tuple(counted.callers.get(names[at], "") for at in shown.tolist()),
        count=counted.count[shown].astype(np.int64),
        share=share[shown],
        time_ns=counted.time_ns[shown],
        low_ns=(low * counted.time_ns.sum())[shown],
        high_ns=(high * counted.time_ns.sum())[shown],
        idle_ns=idle[shown],
        cause=tuple(cause[at] for at in shown.tolist()),
        interval_ns=int(run.timeline["line_samples"]["interval_ns"].min()),
        covered_share=float(counted.weight_ns.sum() / counted.window_ns),
        in_all=int(counted.count.sum()),
    )


@dataclass(frozen=True)
class _Counted:
    """Of all ranks together by line: samples, the time they stand for, and that of a step of an average rank."""

    count: Floats
    weight_ns: Floats
    time_ns: Floats
    window_ns: int
    callers: dict[str, str]


def _counted(places: list[Place], lines: int) -> _Counted:
    """`places`: one of each rank."""
    count, weight, time = (np.zeros(lines) for _ in range(3))
    window_ns, stacks = 0, []
    for place in places:
        samples, window = _of_rank(place), host_window(place)
        here, of_line = samples.within(window), grouping.sums(samples.line, samples.weights_ns(window), lines)
        count += np.bincount(samples.line[here], minlength=lines)
        weight += of_line
        time += of_line / place.units / len(places)
        window_ns += window.total_ns
        stacks.append(samples.rows.text("stack").take(here))
    return _Counted(count, weight, time, window_ns, _callers(Text.join(stacks)))


def _idle(places: list[Place], groups: int) -> tuple[Floats, list[str]]:
    """Idle behind each line in ns a step, over devices; and the cause of most of it."""
    devices = [place for place in places if place.device is not None]
    if not devices:
        return np.full(groups, np.nan), [""] * groups
    causes = list(devices[0].idle_causes)
    found = np.zeros((len(causes), groups))
    for place in devices:
        samples, window = _of_rank(place), host_window(place)
        for row, cause in enumerate(causes):
            weights = samples.weights_ns(place.idle_causes[cause] & window)  # a part of the line's time, never more
            found[row] += grouping.sums(samples.line, weights, groups) / place.units / len(devices)
    idle = found.sum(axis=0)
    return idle, [causes[row] if any_ else "" for row, any_ in zip(found.argmax(axis=0), idle > 0, strict=True)]


def _range(share: Floats, samples: int) -> tuple[Floats, Floats]:
    """Wilson's range of each share, of so many samples."""
    square = _Z_OF_95_PERCENT**2 / samples
    middle = share + square / 2
    half = np.sqrt(square * (share * (1 - share) + square / 4))
    return (middle - half) / (1 + square), (middle + half) / (1 + square)


def _callers(stacks: Text) -> dict[str, str]:
    """By line the own callers that most of its samples have."""
    found: dict[str, str] = {}
    count = np.bincount(stacks.codes, minlength=len(stacks.values))
    for code in np.argsort(-count, kind="stable").tolist():
        line, _, callers = stacks.values[code].partition(" ← ")
        found.setdefault(line, callers)
    return found


# --- behind the idle of one finding ---


@dataclass(frozen=True)
class Meanwhile:
    """A line on which the training thread was sampled during pieces of idle; `idle_ns`: its part of their time."""

    line: str
    callers: str
    count: int
    idle_ns: int


def meanwhile(place: Place, pieces: Intervals) -> list[Meanwhile]:
    """Lines of own code with enough samples in `pieces`, the most idle first; none where functions were recorded.

    Functions tell exact times, which samples could only repeat less well.
    """
    if len(place.timeline["functions"].of(rank=place.rank)):
        return []
    samples = _of_rank(place)
    here = samples.within(pieces)
    values = samples.rows.name.values
    count = np.bincount(samples.line[here], minlength=len(values))
    called = _callers(samples.rows.text("stack").take(here))
    of_each_ns = pieces.total_ns / max(int(here.sum()), 1)
    found = [
        Meanwhile(values[line], called.get(values[line], ""), int(count[line]), int(of_each_ns * count[line]))
        for line in np.flatnonzero(count >= FEWEST_SAMPLES).tolist()
        if values[line]
    ]
    return sorted(found, key=lambda each: (-each.idle_ns, each.line))


def evidence(place: Place, pieces: Intervals) -> tuple[Rows, ...]:
    """The table of a finding about these pieces of idle: which lines the training thread was on; empty without any."""
    found = meanwhile(place, pieces)
    rows = tuple((each.line, each.callers, each.count, place.per_step(each.idle_ns)) for each in found[:5])
    label, columns = "Lines of your own code meanwhile, sampled", ("line", "called from", "samples", "about, a step")
    return (Rows(label, columns, ("text", "text", "count", "ns"), rows),) if rows else ()

"""How many trainings did one command run, and which processes belong to each?

Ranks of one job are one training. A process without a job of several ranks (hogwild, a sweep, a launcher that starts n
programs) is a training of its own, even if several of them have "rank 0".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from perfdoctor.system.run_folder import ProcessReport

#: A window has at least so many, if the program makes them; that one has more only says that its steps are short.
_ENOUGH_STEPS = 10
#: Linux counts the begin of a process in such ticks.
_TICK_NS = 10_000_000


class Training(Struct, frozen=True):
    """One training: its `number` among the command's in the order of their begin, and its ranks' `reports`."""

    number: int
    reports: tuple[ProcessReport, ...]

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(report.pid for report in self.reports)

    @property
    def steps_recorded(self) -> int:
        return max(report.steps_recorded for report in self.reports)

    @property
    def steps_seen(self) -> int:
        return max(report.steps_seen for report in self.reports)

    @property
    def length_ns(self) -> int:
        """Time from the begin of its first process to its last report; 0 where an older agent reported no begin."""
        begin = self.start_unix_ns
        return max(report.reported_unix_ns for report in self.reports) - begin if begin else 0

    @property
    def start_unix_ns(self) -> int:
        return min((report.started_unix_ns for report in self.reports if report.started_unix_ns), default=0)

    @property
    def has_updates(self) -> bool:
        return any(report.step_found_by not in ("", "forward") for report in self.reports)


def trainings(reports: Iterable[ProcessReport]) -> list[Training]:
    """The trainings of one pass, in the order in which they began."""
    own = _in_order([report for report in reports if report.is_training])
    jobs: dict[Hashable, list[ProcessReport]] = {}
    for job, report in zip(_jobs(own), own, strict=True):
        jobs.setdefault(job, []).append(report)
    ordered = (sorted(each, key=lambda report: report.rank or 0) for each in jobs.values())
    return [Training(number, tuple(each)) for number, each in enumerate(ordered, 1)]


def _in_order(reports: Sequence[ProcessReport]) -> list[ProcessReport]:
    """Reports in the order of their begin; by process id within two ticks, as the clock is no finer."""
    by_time = sorted(reports, key=lambda report: report.started_unix_ns)
    turns = accumulate(b.started_unix_ns - a.started_unix_ns > 2 * _TICK_NS for a, b in pairwise(by_time))
    ordered = sorted(zip([0, *turns], by_time, strict=False), key=lambda each: (each[0], each[1].pid))
    return [report for _, report in ordered]


def longest(among: Sequence[Training]) -> Training:
    """The training to diagnose first: recorded updates before forward passes, then most steps, then the longest run."""

    def weight(each: Training) -> tuple[bool, bool, int, int, int]:
        recorded = min(each.steps_recorded, _ENOUGH_STEPS)
        return recorded > 0, each.has_updates, recorded, each.steps_seen, each.length_ns

    return max(among, key=weight)


def _jobs(reports: Sequence[ProcessReport]) -> list[Hashable]:
    """The job of each process. Where ranks occur several times, jobs differ by their launcher, then by occurrence."""
    times = Counter((report.world_size, report.rank) for report in reports)
    shared = {size for (size, _), number in times.items() if number > 1}
    seen: Counter[Hashable] = Counter()
    found: list[Hashable] = []
    for report in reports:
        if (report.world_size or 1) < 2:
            found.append(("pid", report.pid))
            continue
        job = (report.world_size, report.job if report.world_size in shared else "")
        found.append((*job, seen[job, report.rank]))
        seen[job, report.rank] += 1
    return found

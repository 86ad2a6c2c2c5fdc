"""Do several recordings provably not belong together, although they are shown as the ranks of one job?

Ranks of a job have one size of the job and one version of CUDA's or HIP's runtime, and are recorded at one time. What
is not known of a file says nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from perfdoctor.model.timeline import Source

#: Instants are of a calendar's clock from 2001 on; before, of one that began with its machine.
_OF_CALENDAR_NS = 1_000_000_000_000_000_000
#: Clocks of machines may be off by minutes. A rank never stands still for so long: half an hour is the longest time
#: after which collectives of PyTorch give up by themselves.
_LEAST_APART_NS = 1_800_000_000_000
_HOUR_NS = 3_600_000_000_000
_HOURS_OF_DAYS = 48
_RUNTIMES = ("CUDA ", "HIP ")


class RecordingFacts(NamedTuple):
    """What tells one recording from another. `world_size`: 0 if unknown. `extent_ns`: of all its rows; None without.

    `epoch_ns`: when time 0 was, in ns since 1970; None if it was then, or is not known.
    """

    sources: Sequence[Source]
    world_size: int
    extent_ns: tuple[int, int] | None
    epoch_ns: int | None

    @property
    def name(self) -> str:
        return self.sources[0].file if self.sources else ""

    @property
    def runtime(self) -> str:
        """`CUDA 12.4`; "" if unknown."""
        parts = (part for source in self.sources for part in source.tool_version.split(", "))
        return next((part for part in parts if part.startswith(_RUNTIMES)), "")

    @property
    def when(self) -> tuple[int, int] | None:
        """Begin and end in ns since 1970; None where that is not known."""
        if self.extent_ns is None:
            return None
        begin, end = (at + (self.epoch_ns or 0) for at in self.extent_ns)
        return (begin, end) if begin >= _OF_CALENDAR_NS else None


def notes(recordings: Sequence[RecordingFacts]) -> list[str]:
    """One sentence that says why they do not belong together, and what to do; none where they may."""
    jobs = ((each.name, f"a job of {each.world_size:,} ranks" if each.world_size else "") for each in recordings)
    runtimes = ((each.name, each.runtime) for each in recordings)
    reasons = [*_different(jobs), *_different(runtimes), *_apart(recordings)]
    if not reasons:
        return []
    lead = "These recordings do not belong together, and are shown as ranks of one job all the same"
    return [f"{lead}: {'; '.join(reasons)}. Analyze each alone; of two versions of a program use perfdoctor compare."]


def _different(said: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What the first two files that differ say; "" says nothing. `said`: name of a file and what it says."""
    names: dict[str, str] = {}
    for name, what in said:
        names.setdefault(what, name)
    names.pop("", None)
    if len(names) > 1:
        (one, first), (other, second) = list(names.items())[:2]
        yield f"{first} is of {one}, {second} of {other}"


def _apart(recordings: Sequence[RecordingFacts]) -> Iterator[str]:
    """The longest time between two recordings in which none was recorded, in words."""
    known = sorted((each.when, each.name) for each in recordings if each.when)
    last: list[tuple[int, str]] = []
    for (_, end), name in known:
        last.append(max([(end, name), *last[-1:]]))
    gaps = [
        (begin - end, before, after)
        for (end, before), (_, ((begin, _), after)) in zip(last, pairwise(known), strict=False)
    ]
    longest = max(gaps, default=(0, "", ""))
    if longest[0] > _LEAST_APART_NS:
        hours = longest[0] / _HOUR_NS
        apart = f"{hours:.1f} hours" if hours < _HOURS_OF_DAYS else f"{hours / 24:,.0f} days"
        yield f"{longest[1]} ends {apart} before {longest[2]} begins"

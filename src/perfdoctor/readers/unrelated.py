"""Do several recordings provably not belong together, although they are shown as the ranks of one job?

Ranks of a job have one size of the job and one version of CUDA's or HIP's runtime, and are recorded at one time. What
is not known of a file says nothing about it. Of files in which the same rank was recorded, one after the other, the
newest are read: a profiler's schedule that repeats leaves such, and a second run into the same folder. Run folders of
that kind are refused: a folder of runs is easily given for one of its runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import NamedTuple

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Source
from perfdoctor.system.run_folder import MANIFEST, RunFolder

#: Instants are of a calendar's clock from 2001 on; before, of one that began with its machine.
_OF_CALENDAR_NS = 1_000_000_000_000_000_000
#: Clocks of machines may be off by minutes. A rank never stands still for so long: half an hour is the longest time
#: after which collectives of PyTorch give up by themselves.
_LEAST_APART_NS = 1_800_000_000_000
_HOUR_NS = 3_600_000_000_000
_HOURS_OF_DAYS = 48
_RUNTIMES = ("CUDA ", "HIP ")
_SECOND_NS = 1_000_000_000
#: A range may end, and a call return, in the next recording of its process: one part of the time in so many is of both.
#: Ranks of one job whose numbers are not known are recorded at one time.
_SHARED_PART = 10
#: So many of the files that are left out are named, and of those that are read.
_MOST_NAMED = 2


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
    def ranks(self) -> frozenset[int]:
        return frozenset(rank for source in self.sources for rank in source.ranks)

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


# --- one after the other ---


def earlier(files: Sequence[PurePath], recordings: Sequence[RecordingFacts]) -> tuple[frozenset[int], list[str]]:
    """Numbers of those recordings that are no part of the newest one of their ranks, and a note that names them.

    None where no rank was recorded in two of them, one after the other. `files`: that they are read from.
    """
    known = {number: each.when for number, each in enumerate(recordings) if each.when}
    last: dict[int, tuple[int, int]] = {}
    for number, when in known.items():
        for rank in recordings[number].ranks:
            last[rank] = max(last.get(rank, when), when)
    before = {
        number
        for number, when in known.items()
        if any(_is_before(when, last[rank]) for rank in recordings[number].ranks)
    }
    if not before:
        return frozenset(), []
    newest = max(last.values())
    left_out = frozenset(number for number, when in known.items() if number in before or _is_before(when, newest))
    names = _distinct_names(files)
    kept, others = ([name for n, name in enumerate(names) if (n in left_out) is is_out] for is_out in (False, True))
    analysed = f"the newest, {kept[0]}, is" if len(kept) == 1 else f"the newest ones, {_first(kept)}, are"
    note = (
        f"These {len(files)} recordings are of the same ranks, one after the other: {analysed} analysed. "
        f"Give the other{'s by themselves' if len(others) > 1 else ' by itself'}: {_first(others)}; "
        "of two versions of a program use perfdoctor compare."
    )
    return left_out, [note]


def _is_before(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Does one recording end where the other begins, but for what little is of both?"""
    begin, end = one
    return begin < other[0] and end <= other[1] and end - (end - begin) // _SHARED_PART <= other[0]


def _distinct_names(files: Sequence[PurePath]) -> list[str]:
    """The names of the files, with their folders where two names are equal."""
    names = [file.name for file in files]
    return names if len(set(names)) == len(names) else ["/".join(file.parts[-2:]) for file in files]


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


# --- run folders ---


def refuse_below(folder: Path) -> None:
    """Raise PerfdoctorError where this is no run folder, and holds runs of which some cannot be of one job."""
    if RunFolder.open(folder) is None:
        refuse([run for file in sorted(folder.rglob(MANIFEST)) if (run := RunFolder.open(file.parent))], str(folder))


def refuse(runs: Sequence[RunFolder], given: str = "") -> None:
    """Raise PerfdoctorError where these runs, which were `given` so, cannot be of one job.

    What is not known of a run says nothing about it.
    """
    of_ranks: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for run in runs:
        for key, span in _recorded(run):
            of_ranks.setdefault(key, []).append(span)
    if any(later[0] >= earlier[1] for spans in of_ranks.values() for earlier, later in pairwise(sorted(spans))):
        newest = max(runs, key=lambda run: run.manifest.started_unix_ns).path
        said = f"{given} holds {len(runs)} runs" if given else f"{len(runs)} runs were given"
        raise PerfdoctorError(
            f"{said}, recorded one after the other: they are not the ranks of one job",
            do=f"Give one of them, as {newest}; of two versions of a program use perfdoctor compare.",
        )


def _recorded(run: RunFolder) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
    """Each pass and rank, with when the pass began and ended, in ns since 1970."""
    spans = {
        each.name: (each.started_unix_ns, each.started_unix_ns + round(each.seconds * _SECOND_NS))
        for each in run.manifest.passes
        if each.started_unix_ns > 0 and each.seconds
    }
    for each in run.manifest.ranks:
        name, rank = each.get("pass"), each.get("rank")
        if isinstance(name, str) and isinstance(rank, int) and name in spans:
            yield (name, rank), spans[name]

"""Do several run folders hold one job? Not where the same rank was recorded in two of them, one after the other.

A folder of runs is easily given for one of its runs: it would be shown as a job of as many ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.system.run_folder import MANIFEST, RunFolder

_SECOND_NS = 1_000_000_000


def refuse_below(folder: Path) -> None:
    """Raise PerfdoctorError where this is no run folder, and holds runs of which some cannot be of one job."""
    if RunFolder.open(folder) is None:
        refuse([run for file in sorted(folder.rglob(MANIFEST)) if (run := RunFolder.open(file.parent))], str(folder))


def refuse(runs: Sequence[RunFolder], given: str = "") -> None:
    """The same of runs that were given together. What is not known of a run says nothing about it."""
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

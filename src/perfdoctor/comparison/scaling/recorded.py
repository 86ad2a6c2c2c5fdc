"""What of one recording does a series need? A snapshot as a comparison takes it, its ranks, and the work of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perfdoctor.comparison.records import Snapshot
from perfdoctor.comparison.scaling.records import Recorded
from perfdoctor.comparison.scaling.work_size import work_of_rank
from perfdoctor.errors import UsageError
from perfdoctor.model.run import Run
from perfdoctor.replay.edits.other_ranks import recorded_ranks

#: Numbers of ranks: the largest, and the one that predicts it.
_REPLAYED = 2


def of_run(snapshot: Snapshot, run: Run) -> Recorded:
    return Recorded(snapshot, _ranks(run), work_of_rank(run), run)


def _ranks(run: Run) -> int:
    """Processes of the job, or the GPUs of a single one; 0 where it communicates with ranks that are not recorded."""
    devices = sum(place.device is not None for place in run.job.places)
    return max(recorded_ranks(run), devices) if devices > 1 else recorded_ranks(run)


def of_document(snapshot: Snapshot, document: Mapping[str, Any]) -> Recorded:
    ranks = max(int(document["run"]["world_size"]), len(document["time"]))
    alone = ranks == 1 and any(row["communication_ns"] for row in document["time"])
    return Recorded(snapshot, 0 if alone else ranks)


def stated(recorded: Recorded, ranks: int) -> Recorded:
    """The recording with the number of ranks that the user gave. Raises UsageError if it recorded another number."""
    if recorded.ranks > 1 and recorded.ranks != ranks:
        raise UsageError(
            f"{recorded.snapshot.name} was recorded among {recorded.ranks} ranks, not {ranks}",
            do=f"Leave {ranks}= out.",
        )
    return replace(recorded, ranks=ranks)


def kept_for_replay(series: Sequence[Recorded]) -> list[Recorded]:
    """The series, in which only the recordings with most ranks keep the run that a replay needs: it is large."""
    most = sorted({each.ranks for each in series})[-_REPLAYED:]
    return [each if each.ranks in most else replace(each, run=None) for each in series]

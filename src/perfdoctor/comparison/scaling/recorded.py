"""What of one recording does a series need? A snapshot, its ranks, and how much work one of them has in a step.

Ranks that share the work of one (strong scaling) or have it each (weak) are recognised by that amount.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from perfdoctor.comparison import snapshot as snapshots
from perfdoctor.comparison.records import Snapshot
from perfdoctor.comparison.scaling.laws import line
from perfdoctor.comparison.scaling.records import Kind, Recorded
from perfdoctor.diagnosis.records import Examination
from perfdoctor.errors import UsageError
from perfdoctor.metrics.host.batch_items import items_per_step
from perfdoctor.model.launches import recorded_launches
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.replay.edits.batch_work import batch_copies
from perfdoctor.replay.edits.other_ranks import recorded_ranks
from perfdoctor.vocabulary.names import kernels as kernel_names
from perfdoctor.vocabulary.names import torch as torch_names
from perfdoctor.vocabulary.rulebook import Rule

ITEMS = "items of its loss"
#: What shows the work of one rank, the surest first: the first that all recordings have decides.
MEASURES = (ITEMS, "bytes of its batch", "threads of its element-wise kernels")
#: Of copies from the host: a scalar or a seed is no larger.
_LEAST_BATCH_BYTES = 64
#: Work grows with ranks to the power 0 (weak) or −1 (strong). Nearer than halfway between a half and either is clear.
_CLEAR = 0.25
#: Numbers of ranks: the largest, and the one that predicts it.
_REPLAYED = 2


def of_run(snapshot: Snapshot, run: Run) -> Recorded:
    """A recording that was read. Its ranks: processes of the job, or the GPUs of a single one, or 0 if not recorded."""
    devices = sum(place.device is not None for place in run.job.places)
    ranks = max(recorded_ranks(run), devices) if devices > 1 else recorded_ranks(run)
    return Recorded(snapshot, ranks, work_of_rank(run), run)


def of_document(snapshot: Snapshot, document: Mapping[str, Any]) -> Recorded:
    """A recording of which a diagnosis.json is left."""
    ranks = max(int(document["run"]["world_size"]), len(document["time"]))
    alone = ranks == 1 and any(row["communication_ns"] for row in document["time"])
    return Recorded(snapshot, 0 if alone else ranks)


def of_given(
    name: str, paths: Sequence[Path], examined: Callable[[], Examination], rules: Mapping[str, Rule],
    document: Mapping[str, Any] | None,
) -> Recorded:  # fmt: skip
    """One recording by the `document` that is its diagnosis.json, else as it is `examined`."""
    if document is not None:
        return of_document(snapshots.of_document(name, dict(document), rules), document)
    examination = examined()
    return of_run(snapshots.of_examination(name, examination, rules, paths), examination.run)


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


def work_of_rank(run: Run) -> dict[str, float]:
    """The work of a rank in a step, as a mean over those that were read, by each of `MEASURES` that is known."""
    on_device = [place for place in run.places if place.device is not None]
    found = {
        MEASURES[0]: items_per_step(run) or 0.0,
        MEASURES[1]: _mean([_batch_bytes(place) for place in on_device]),
        MEASURES[2]: _mean([_threads(place) for place in on_device]),
    }
    least = {MEASURES[1]: _LEAST_BATCH_BYTES}
    return {name: size for name, size in found.items() if size > least.get(name, 0.0)}


def _mean(sizes: Sequence[float]) -> float:
    return float(np.mean(sizes)) if sizes else 0.0


def _batch_bytes(place: Place) -> float:
    chosen = batch_copies(place)[place.work.rows["copies"]] & place.in_window("copies")
    return float(np.maximum(place.recorded("copies")["bytes"][chosen], 0).sum()) / place.units


def _threads(place: Place) -> float:
    """Threads of element-wise kernels a step, each of a fixed number of elements; without those of the optimizer."""
    kernels = place.recorded("kernels")
    updating = recorded_launches(place, "kernels").while_open(torch_names.OPTIMIZER_RANGE, "ranges", "ops")
    chosen = kernels.name.has(kernel_names.family, "elementwise") & ~updating & place.in_window("kernels")
    sizes = np.maximum(kernels["blocks"], 0) * np.maximum(kernels["threads_per_block"], 0)
    return float(sizes[chosen].sum()) / place.units


def kind_of(series: Sequence[Recorded]) -> tuple[Kind, str]:
    """Weak or strong, and by which measure; "" where none is known of all, or the work follows neither."""
    for measure in MEASURES:
        sizes = [each.work.get(measure, 0.0) for each in series]
        if all(sizes):
            power = line([math.log(each.ranks) for each in series], [math.log(size) for size in sizes]).slope
            is_weak, is_strong = abs(power) <= _CLEAR, abs(power + 1) <= _CLEAR
            return "weak" if is_weak else "strong" if is_strong else "", measure
    return "", ""


def items(series: Mapping[int, Sequence[Recorded]]) -> dict[int, float] | None:
    """Items of one rank in a step by number of ranks; None unless all recordings know them."""
    known = {ranks: _mean([each.work.get(ITEMS, 0.0) for each in recorded]) for ranks, recorded in series.items()}
    return known if all(each.work.get(ITEMS) for recorded in series.values() for each in recorded) else None

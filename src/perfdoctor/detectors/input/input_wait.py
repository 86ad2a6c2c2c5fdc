"""The training waits for its next batch while the device has nothing to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from perfdoctor.detectors.of_idle import Idle, of_cause
from perfdoctor.detectors.saved_shares import at_most, half_certain, shares
from perfdoctor.metrics.accounting.host_place import host_places
from perfdoctor.metrics.accounting.real_time import real_time
from perfdoctor.metrics.host import cpu_use, feeding
from perfdoctor.metrics.host.feeding import loader
from perfdoctor.metrics.host.item_fetch import ItemFetch, item_fetch
from perfdoctor.metrics.host.loader_workers import Prospect
from perfdoctor.metrics.units import ms
from perfdoctor.model.run import Run
from perfdoctor.model.steps import Confidence
from perfdoctor.records.findings import Evidence, Finding, Measure, Rows
from perfdoctor.records.savings import Saving
from perfdoctor.system.run_folder import LoaderTrial


class _Judged(Struct, frozen=True):
    """What workers, or batches that are indexed at once, save, and which of the situations that is.

    `stays_ns`: what then likely stays of the wait, a step; `stays_most_ns`: at most, all of it where workers may make
    the step longer.
    """

    situation: str
    saving: Saving
    prospect: Prospect | None = None
    items: ItemFetch | None = None
    stays_ns: float = 0.0
    stays_most_ns: float = 0.0


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find idle time that is proven, or on an unmarked recording inferred, to be a wait for the next batch."""
    found = of_cause(run, "input_wait", at["min_share_of_step"])
    if found is None:
        return
    judged = _judged(run, found, at)
    yield Finding(
        rule="input-wait",
        saving_ns_per_step=judged.saving,
        confidence=_confidence(run, judged),
        values={
            **found.time_values("wait"),
            "longest_ms": ms(found.longest_ns),
            "stays_ms": ms(judged.stays_ns),
            "stays_most_ms": ms(judged.stays_most_ns),
            **(judged.prospect.worker_values() if judged.prospect else {}),
            **(judged.items.item_values() if judged.items else {}),
        },
        evidence=(
            Measure("idle while the next batch was awaited", found.ns, "ns"),
            Measure("as a share of the step", found.share, "share"),
            Measure("longest single wait", found.longest_ns, "ns"),
            *_evidence(run, judged),
        ),
        situation=judged.situation,
        doubt="shared-cores" if _is_measured(run, judged) and _is_crowded(judged) else "",
        sources={} if judged.items else dict.fromkeys(("stays_ms", "stays_most_ms"), _source(run)),
    )


def _source(run: Run) -> str:
    """Where it comes from what a batch from a worker costs."""
    return "recording" if feeding.trial(run) else "measured" if feeding.cost(run).is_measured else "table"


def _confidence(run: Run, judged: _Judged) -> Confidence:
    """Low where a fix may make the step longer; high where what it rests on was measured, and cores are left for it."""
    if judged.saving.likely and not judged.saving.low:
        return "low"
    return "high" if _is_measured(run, judged) and not _is_crowded(judged) else "medium"


def _is_measured(run: Run, judged: _Judged) -> bool:
    """Are the cores known, and what a batch from a worker costs?"""
    # Of items it is not known what the dataset does between its ops.
    is_known = judged.situation not in ("unmarked", "items") and feeding.cores(run).is_known
    return is_known and _source(run) != "table"


def _is_crowded(judged: _Judged) -> bool:
    return judged.prospect is not None and judged.prospect.crowded


def _judged(run: Run, found: Idle, at: Mapping[str, float]) -> _Judged:
    """What a fix of the wait saves, by what is known of the loader."""
    kind, known = loader(run), feeding.reported_loader(run)
    if kind == "single-process":
        prospect = feeding.prospect(run, found.ns, 0)
    elif (
        kind == "workers"
        and known
        and known.workers
        and _is_pace(found, math.ceil(known.workers / feeding.batches_per_step(run)))
    ):
        prospect = feeding.prospect(run, found.ns, known.workers)
    else:
        return _of_unknown_workers(kind, run, found, at)
    won_ns = run.step_ns - prospect.likely_ns
    items = item_fetch(found.worst)
    if items and items.op_ns > at["longest_op_of_an_item"]:  # ops of indexing are shorter
        items = None
    if items and items.won_share * found.ns >= max(won_ns, at["min_share_of_step"] * run.step_ns):
        won_ns = _won_at_once_ns(run, found, items)
        return _Judged("items", half_certain(won_ns, found.ns), prospect, items, found.ns - won_ns)
    if won_ns < at["min_share_of_step"] * run.step_ns:
        situation = _why_not(kind, found, prospect)
        # Samples that are made at less cost shorten the wait; what is handed over costs the same.
        made_ns = 0 if situation == "handed-over" else int(at["cheaper_share"] * found.ns)
        return _Judged(situation, half_certain(made_ns, found.ns), prospect)
    # Cores that others have, or that nobody counted, may not be there for workers: then these may save nothing. A trial
    # had the same cores.
    counted = feeding.cores(run).is_known and not cpu_use.others_use_the_rest(run)
    is_known = counted or feeding.trial(run) is not None
    worst_ns = prospect.worst_ns if is_known or not host_places(run) else run.step_ns
    stays_ns, stays_most_ns = (found.ns - max(run.step_ns - ns, 0.0) for ns in (prospect.likely_ns, worst_ns))
    return _Judged(kind, _saving(found.ns, at, stays_ns, stays_most_ns), prospect, None, stays_ns, stays_most_ns)


def _is_pace(found: Idle, round_steps: int) -> bool:
    """Do the usual steps wait, as for workers that are too slow? For workers that start, single ones do.

    Equal workers finish together: the training waits for all their batches at once, and then for none of them. So their
    pace is seen in `round_steps`, in which each of them makes a batch.
    """
    each = found.each_step_ns
    whole = each.size // round_steps * round_steps
    rounds = each[:whole].reshape(-1, round_steps).mean(axis=1) if whole else each
    return bool(np.median(rounds) >= np.mean(each) / 2)


def _won_at_once_ns(run: Run, found: Idle, items: ItemFetch) -> int:
    """The wait less one gather, in ns a step.

    Recording does not stretch a gather; it is stretched as much as `diagnosis/predicted_saving.py` shortens the wait.
    """
    real = real_time(run)
    stretch = real.stretch_by_part.get("input_wait", 1.0) if real and real.is_notable else 1.0
    return int(max(1 - (1 - items.won_share) * stretch, 0.0) * found.ns)


def _of_unknown_workers(kind: str, run: Run, found: Idle, at: Mapping[str, float]) -> _Judged:
    """What a fix saves where it is not known how many processes make batches; receiving them stays."""
    won_ns = found.ns - (feeding.receive_ns(run) if kind == "workers" else 0.0)
    if won_ns < at["min_share_of_step"] * run.step_ns:
        return _Judged("handed-over", at_most(found.ns))
    stays_ns = found.ns - won_ns
    return _Judged(kind, _saving(found.ns, at, stays_ns, stays_ns), stays_ns=stays_ns, stays_most_ns=stays_ns)


def _saving(wait_ns: int, at: Mapping[str, float], stays_ns: float, stays_most_ns: float) -> Saving:
    """The saving by what stays of the wait; at most all of it, which cheaper samples may save, too."""
    likely = shares(at, "recoverable_share").of(wait_ns - stays_ns).likely
    return Saving(min(shares(at, "recoverable_share").of(wait_ns - stays_most_ns).low, likely), likely, wait_ns)


def _why_not(kind: str, found: Idle, prospect: Prospect) -> str:
    """Why workers save nothing: receiving costs as much as the wait, or no core would be idle."""
    if prospect.receive_ns >= found.ns or not prospect.crowded:
        return "cheap-batches" if kind == "single-process" else "handed-over"
    return "busy-cores"


def _evidence(run: Run, judged: _Judged) -> Iterator[Evidence]:
    """The numbers that the prediction rests on: items that are indexed at once, and batches from workers."""
    if items := judged.items:
        yield Measure("items of a batch, collected one by one", items.items, "count")
        yield Measure("ops of an item", items.ops_per_item, "count")
        yield Measure("an op of an item, with the Python around it", items.op_ns, "ns")
        yield Measure("a batch that is indexed at once", items.at_once_ns, "ns")
    if judged.prospect is None:
        return
    cores, known = feeding.cores(run), feeding.reported_loader(run)
    yield Measure("receiving a batch from a worker takes the training process", judged.prospect.receive_batch_ns, "ns")
    if judged.prospect.batches > 1:
        yield Measure("batches of a step", judged.prospect.batches, "count")
    yield from _of_trial(feeding.trial(run))
    if known:
        yield Measure("tensors of a batch", known.tensors, "count")
        yield Measure("bytes of a batch", known.bytes, "bytes")
    if cores.is_known:
        yield Measure("cores that each training process may use", cores.count, "count")
    if cores.idle >= 0:
        yield Measure("of these idle or used by other programs, on the mean of the steps", cores.idle, "count")


def _of_trial(tried: LoaderTrial | None) -> Iterator[Evidence]:
    if tried is None:
        return
    yield Measure("making a batch takes one worker", tried.make_ns, "ns")
    yield Measure("of that on a core", tried.make_cpu_ns, "ns")
    if tried.taken:
        rows = tuple((each.workers, each.batch_ns, each.cpu_ns, each.start_ns) for each in tried.taken)
        columns = ("workers", "from one batch to the next", "on cores, a batch", "start of the workers")
        yield Rows("tried without the training", columns, ("count", "ns", "ns", "ns"), rows)

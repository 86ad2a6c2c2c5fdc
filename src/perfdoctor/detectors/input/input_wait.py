"""The training waits for its next batch while the device has nothing to do."""

from __future__ import annotations

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
from perfdoctor.records.findings import Evidence, Finding, Measure
from perfdoctor.records.savings import Saving


class _Judged(Struct, frozen=True):
    """What workers, or batches that are indexed at once, save, and which of the situations that is.

    `stays_ns`: what then stays of the wait, a step; `formula`: that of the saving, if not that of the situation.
    """

    situation: str
    saving: Saving
    prospect: Prospect | None = None
    items: ItemFetch | None = None
    stays_ns: float = 0.0
    formula: str = ""


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find idle time that is proven, or on an unmarked recording inferred, to be a wait for the next batch."""
    found = of_cause(run, "input_wait", at["min_share_of_step"])
    if found is None:
        return
    judged = _judged(run, found, at)
    # Of items it is not known what the dataset does between its ops.
    is_measured = judged.situation not in ("unmarked", "items")
    is_measured = is_measured and feeding.cores(run).is_known and feeding.cost(run).is_measured
    yield Finding(
        rule="input-wait",
        saving_ns_per_step=judged.saving,
        confidence="high" if is_measured else "medium",
        values={
            **found.time_values("wait"),
            "longest_ms": ms(found.longest_ns),
            "stays_ms": ms(judged.stays_ns),
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
        formula=judged.formula,
        sources={} if judged.items else {"stays_ms": "measured" if feeding.cost(run).is_measured else "table"},
    )


def _judged(run: Run, found: Idle, at: Mapping[str, float]) -> _Judged:
    """What a fix of the wait saves, by what is known of the loader."""
    kind, known = loader(run), feeding.reported_loader(run)
    # Workers that are too slow make the usual step wait; workers that start make single ones wait.
    is_pace = np.median(found.each_step_ns) >= np.mean(found.each_step_ns) / 2
    if kind == "single-process":
        prospect = feeding.prospect(run, found.ns, 0)
    elif kind == "workers" and known and known.workers and is_pace:
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
        return _Judged(_why_not(kind, found, prospect), at_most(found.ns), prospect)
    unsure = prospect.crowded or cpu_use.others_use_the_rest(run)
    unsure |= bool(host_places(run)) and not feeding.cores(run).is_known
    saving = _saving(won_ns, found.ns, at, unsure=unsure)
    return _Judged(kind, saving, prospect, None, found.ns - won_ns, "unsure" if unsure else "")


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
    return _Judged(kind, _saving(won_ns, found.ns, at), stays_ns=found.ns - won_ns)


def _saving(won_ns: float, wait_ns: int, at: Mapping[str, float], *, unsure: bool = False) -> Saving:
    """The saving, at most all of the wait, which cheaper samples may save, too. `unsure`: workers may save nothing."""
    expected = shares(at, "recoverable_share").of(won_ns)
    return Saving(0 if unsure else expected.low, expected.likely, wait_ns)


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
    batch, cores = feeding.batch(run), feeding.cores(run)
    yield Measure("receiving a batch from a worker takes the training process", judged.prospect.receive_ns, "ns")
    if feeding.reported_loader(run):
        yield Measure("tensors of a batch", batch.tensors, "count")
        yield Measure("bytes of a batch", batch.bytes, "bytes")
    if cores.is_known:
        yield Measure("cores that each training process may use", cores.count, "count")
    if cores.idle >= 0:
        yield Measure("of these idle or used by other programs, on the mean of the steps", cores.idle, "count")

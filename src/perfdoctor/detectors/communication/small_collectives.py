"""Many small messages: each costs its latency, whatever it carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from perfdoctor.detectors.affected import affected
from perfdoctor.metrics.communication.by_use import exposed_each_ns, mostly
from perfdoctor.metrics.communication.collectives import exposed_rows_ns, longest_transfer_ns, transfer_share
from perfdoctor.metrics.communication.skew import skew
from perfdoctor.metrics.finding_rows import work_of
from perfdoctor.metrics.program import facts
from perfdoctor.metrics.units import us
from perfdoctor.model.place import Place
from perfdoctor.model.run import Run
from perfdoctor.model.timeline import UNKNOWN, Mask
from perfdoctor.records.findings import Finding, Measure
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.names import nccl as nccl_names

#: Point-to-point messages and barriers cannot be merged, nor the sums that tensor parallelism takes inside layers, for
#: which there are kernels of their own.
_MERGED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
#: Facts of programs that tell each other how many rows they will send.
_EXCHANGED = frozenset({"experts", "embeddings"})


def _small(run: Run, place: Place, at: Mapping[str, float]) -> Mask:
    """One bool a collective: is it small by its bytes or, where these are unknown, by its time, and can be merged?

    Whole numbers that say how much the next exchange will bring cannot.
    """
    frame = place.collectives
    size = frame["bytes"]
    is_short = frame.duration_ns < at["small_message_us"] * 1000
    small = np.where(size == UNKNOWN, is_short, size < at["small_message_bytes"])
    in_layers = frame.name.matches(nccl_names.IN_LAYERS)
    announces = frame.text("data_type").matches(nccl_names.WHOLE_NUMBERS) & bool(facts(run) & _EXCHANGED)
    return small & frame.text("kind").where(lambda kind: kind in _MERGED) & ~in_layers & ~announces


def _usual_ns(run: Run, place: Place, at: Mapping[str, float]) -> int:
    """Exposed ns of small messages in the window, none counted for longer than the median: the rest is waiting.

    So is what no transfer of so few bytes takes.
    """
    rows = _small(run, place, at)
    if not rows.any():
        return 0
    least = np.minimum(place.collectives.duration_ns, longest_transfer_ns(place.collectives))
    usual = float(np.median(least[rows]))
    return min(exposed_rows_ns(place, rows), int(usual * np.count_nonzero(rows)))


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the exposed time of messages so small that their latency is their price."""
    transfer = transfer_share(run) if skew(run) is not None else 1.0
    found = affected(run, lambda place: _usual_ns(run, place, at) * transfer, at["min_share_of_step"])
    if found is None:
        return
    worst = found.worst
    rows = _small(run, worst, at)
    count = np.count_nonzero(rows) / worst.units
    if count < at["min_messages_per_step"]:
        return
    # Those that depend on each other cannot be merged, and of the others as many remain as there are kinds and groups.
    frame = worst.collectives.take(rows)
    different = len(set(zip(frame.text("kind"), frame.text("group_name"), strict=True)))
    are_sized = bool((frame["bytes"] != UNKNOWN).all())
    merged_ns = max(int(found.ns * (1 - different / count)), 0)
    yield Finding(
        rule="small-collectives",
        saving_ns_per_step=Saving(0, merged_ns, found.ns),
        confidence="high" if are_sized else "medium",
        values={
            "messages_per_step": count,
            "mostly": mostly(run, run.places, lambda place: exposed_each_ns(place) * _small(run, place, at)),
            "different": different,
            "usual_us": us(float(np.median(frame.duration_ns))),
            **found.time_values("exposed"),
        },
        evidence=(
            Measure("small messages a step", count, "count"),
            Measure("their exposed time, each at most the usual one's", found.ns, "ns"),
            Measure("their middle size", float(np.median(frame["bytes"])), "bytes")
            if are_sized
            else Measure("all messages a step", len(worst.collectives) / worst.units, "count"),
        ),
        work=work_of(run, lambda place: _small(run, place, at)),
        affected_ns=found.ns,
    )

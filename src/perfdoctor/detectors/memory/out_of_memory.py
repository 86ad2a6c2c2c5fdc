"""A request for memory that failed: what was asked, what there was, and who held the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.memory.peak import holders, out_of_memories
from perfdoctor.metrics.units import mib
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure, Rows
from perfdoctor.vocabulary.kinds import memory_label

_SHOWN = 5


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find the last one: earlier ones were survived. It costs the run, and no time that a fix would save."""
    failures = [each for each in out_of_memories(run.timeline) if each.asked_bytes >= at["min_asked_bytes"]]
    if not failures:
        return
    last = failures[-1]
    found = holders(last.replay.allocations, last.replay.alive_at(last.at))[:_SHOWN]
    held = tuple((each.stack or "no stack", memory_label(each.category), each.bytes, each.count) for each in found)
    columns, units = ("line and callers", "for", "held", "tensors"), ("text", "text", "bytes", "count")
    yield Finding(
        rule="out-of-memory",
        saving_ns_per_step=NO_SAVING,
        confidence="high",
        values={
            "line": last.line or "A request without a stack",
            "asked_mib": mib(last.asked_bytes),
            "active_mib": mib(last.active_bytes),
            "device_free_mib": mib(max(last.device_free_bytes, 0)),
            "free_mib": mib(int(last.free_pieces.sum())),
            "reserved_mib": mib(last.reserved_bytes),
            "pieces": int(last.free_pieces.size),
            "largest_mib": mib(int(last.free_pieces.max(initial=0))),
        },
        evidence=(
            Measure(f"asked for on rank {last.replay.rank}", last.asked_bytes, "bytes"),
            Measure("left on the GPU", max(last.device_free_bytes, 0), "bytes"),
            Measure("reserved by torch, and free", int(last.free_pieces.sum()), "bytes"),
            Measure("of it in whole pages that could be moved", last.movable_bytes, "bytes"),
            Measure("requests that failed", len(failures), "count"),
            *([Rows("Who held most", columns, units, held)] if held else []),
        ),
        situation="pieces" if last.fits_in_pieces else "",
    )

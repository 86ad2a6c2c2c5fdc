"""What torch reserves on the GPU rises, though what the training holds does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from perfdoctor.detectors.saved_shares import NO_SAVING
from perfdoctor.metrics.memory.growth import Reserve, reserves
from perfdoctor.metrics.memory.in_use import replays
from perfdoctor.metrics.units import mib
from perfdoctor.model.run import Run
from perfdoctor.records.findings import Finding, Measure


def _grown(reserve: Reserve) -> int:
    return reserve.peak_bytes - reserve.first_bytes


def _in_pieces(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find what a snapshot proves: memory was free when asked for, and could not be used because it was cut up."""
    found = [(replay.refits(), replay.rank) for replay in replays(run.timeline)]
    proven = [
        each
        for each in found
        if each[0].count >= at["min_rises"]
        and each[0].free_bytes >= max(at["min_growth_bytes"], at["min_free_share"] * each[0].reserved_bytes)
    ]
    if proven:
        refits, rank = max(proven, key=lambda each: each[0].free_bytes)
        evidence = (
            Measure(f"reserved on rank {rank} when most of it lay free", refits.reserved_bytes, "bytes"),
            Measure("free at that moment", refits.free_bytes, "bytes"),
            Measure("largest free piece", refits.largest_free_bytes, "bytes"),
        )
        grown, held = refits.free_bytes, refits.largest_free_bytes
        finding = _finding(grown, refits.reserved_bytes, held, refits.count, evidence)
        yield replace(finding, confidence="high", situation="pieces")


def _finding(grown: int, reserved: int, held: int, rises: int, evidence: tuple[Measure, ...]) -> Finding:
    return Finding(
        rule="allocator-fragmentation",
        saving_ns_per_step=NO_SAVING,
        confidence="medium",
        values={"grown_mib": mib(grown), "reserved_mib": mib(reserved), "held_mib": mib(held), "rises": rises},
        evidence=evidence,
    )


def detect(run: Run, at: Mapping[str, float]) -> Iterator[Finding]:
    """Find a reserve that keeps rising; that it is above what is held is normal at the end of a step."""
    rising = [
        reserve
        for reserve in reserves(run.timeline)
        if _grown(reserve) >= max(at["min_growth_bytes"], at["min_growth_share"] * reserve.first_bytes)
        and reserve.rises >= at["min_rises"]
        and reserve.held_last_bytes - reserve.held_first_bytes <= at["max_held_share"] * _grown(reserve)
    ]
    if not rising:
        yield from _in_pieces(run, at)
        return
    most = max(rising, key=_grown)
    evidence = (
        Measure(f"reserved after the first sample on rank {most.rank}", most.first_bytes, "bytes"),
        Measure("most that was reserved", most.peak_bytes, "bytes"),
        Measure("held at the end of the first step", most.held_first_bytes, "bytes"),
        Measure("held at the end of the last", most.held_last_bytes, "bytes"),
    )
    yield _finding(_grown(most), most.peak_bytes, most.held_last_bytes, most.rises, evidence)

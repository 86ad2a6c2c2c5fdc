"""allocator-fragmentation: reserved memory rises, held memory does not."""

from __future__ import annotations

from collections.abc import Sequence

from builders import BASE_NS, findings, only_finding, summary, timeline

from perfdoctor.timeline.model import Timeline

MIB = 1 << 20


def samples(reserved: Sequence[float], held: Sequence[float] | None = None, kind: str = "cuda") -> Timeline:
    """Reserved and held bytes at the end of each step, in MiB."""
    held = held or [1000] * len(reserved)
    return timeline(
        memory=[
            {"process": 100, "start_ns": BASE_NS + at, "end_ns": BASE_NS + at, "name": kind,
             "allocated_bytes": round(one * MIB), "reserved_bytes": round(other * MIB)}
            for at, (other, one) in enumerate(zip(reserved, held, strict=True))
        ]
    )  # fmt: skip


def test_it_fires_where_the_reserve_keeps_rising():
    finding = only_finding("allocator-fragmentation", samples([2000, 2400, 2400, 2800, 3200, 3200]))
    assert finding.values == {"grown_mib": 1200, "reserved_mib": 3200, "held_mib": 1000, "rises": 3}
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0, 0, 0)
    assert "reserves 1,200 MiB more than after the first recorded step, in 3 steps" in summary(finding)


def test_a_reserve_that_falls_in_between_rises_only_beyond_what_it_was():
    assert only_finding("allocator-fragmentation", samples([2000, 2400, 2000, 2400, 2800, 3200])).values["rises"] == 3


def test_it_stays_silent_just_below_a_threshold():
    assert findings("allocator-fragmentation", samples([2000, 2100, 2200, 2255])) == []  # 255 MiB
    assert len(findings("allocator-fragmentation", samples([2000, 2100, 2200, 2257]))) == 1
    assert findings("allocator-fragmentation", samples([4000, 4100, 4200, 4399])) == []  # 10 % are 400
    assert len(findings("allocator-fragmentation", samples([4000, 4100, 4200, 4401]))) == 1
    assert findings("allocator-fragmentation", samples([2000, 2500, 3000, 3000])) == []  # twice


def test_it_stays_silent_where_reserve_is_large_but_still():
    """At the end of a step the activations are gone, and their memory is kept: that is healthy."""
    assert findings("allocator-fragmentation", samples([60_000] * 6)) == []


def test_it_stays_silent_where_what_is_held_rises_along():
    """That is memory-growth's finding."""
    held = [1000, 1400, 1800, 2200]
    assert findings("allocator-fragmentation", samples([2000, 2400, 2800, 3200], held)) == []


def test_it_stays_silent_where_no_reserve_was_recorded():
    assert findings("allocator-fragmentation", samples([0, 0, 0, 0])) == []
    assert findings("allocator-fragmentation", samples([2000, 2400, 2800, 3200], kind="heap")) == []

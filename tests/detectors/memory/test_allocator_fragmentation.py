"""allocator-fragmentation: reserved memory rises, held memory does not."""

from __future__ import annotations

from collections.abc import Sequence

from builders import BASE_NS, findings, only_finding, summary, timeline
from snapshots import Recording

from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.records.savings import Saving

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
    assert finding.saving_ns_per_step == Saving(0, 0, 0)
    assert "grew by 1,200 MiB since the first recorded step, in 3 steps" in summary(finding)


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


# ---- from a snapshot, block by block


def cut_up(tmp_path, *, blocks: int = 40, block: int = 16, requests: int = 4, kept: int = 0) -> Timeline:
    """Every second of many blocks (in MiB) is freed, and then twice as much as a block is asked for."""
    made = Recording(segment_bytes=(blocks * block + kept) * MIB)
    if kept:
        made.alloc(kept * MIB)
    addresses = [made.alloc(block * MIB) for _ in range(blocks)]
    made.begin()
    for address in addresses[::2]:
        made.free(address)
    made.segment_bytes = 2 * block * MIB
    for _ in range(requests):
        made.alloc(2 * block * MIB, "work/train.py:1 step")
    return memory_snapshot.read(made.write(tmp_path / "run.pickle"))


def test_a_snapshot_proves_that_memory_lay_free_in_pieces(tmp_path):
    finding = only_finding("allocator-fragmentation", cut_up(tmp_path))
    assert (finding.situation, finding.confidence) == ("pieces", "high")
    assert finding.values == {"rises": 4, "grown_mib": 20 * 16, "reserved_mib": 40 * 16, "held_mib": 16}
    assert "at worst 320 of 640 MiB reserved were free, in blocks of at most 16 MiB" in summary(finding)


def test_a_snapshot_with_few_such_requests_or_little_free_is_silent(tmp_path):
    assert findings("allocator-fragmentation", cut_up(tmp_path, requests=2)) == []
    assert len(findings("allocator-fragmentation", cut_up(tmp_path, requests=3))) == 1
    assert findings("allocator-fragmentation", cut_up(tmp_path, blocks=30)) == []  # 240 MiB free
    assert len(findings("allocator-fragmentation", cut_up(tmp_path, blocks=32))) == 1  # 256 MiB
    assert findings("allocator-fragmentation", cut_up(tmp_path, kept=1000)) == []  # 320 of 1,640 MiB
    assert len(findings("allocator-fragmentation", cut_up(tmp_path, kept=900))) == 1


def test_a_snapshot_in_which_the_cache_alone_is_large_is_silent(tmp_path):
    made = Recording()
    for address in [made.alloc(100 * MIB) for _ in range(20)]:
        made.free(address)
    assert findings("allocator-fragmentation", memory_snapshot.read(made.write(tmp_path / "run.pickle"))) == []

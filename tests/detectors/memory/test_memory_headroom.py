"""memory-headroom: the host is the limit, and memory for a larger batch lies unused."""

from __future__ import annotations

import pytest
from builders import BASE_NS, draw, findings, frame, only_finding, summary
from msgspec.structs import replace
from snapshots import Recording

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.accounting.prepare import prepare
from perfdoctor.model.timeline import Device, Frame, Timeline, merge
from perfdoctor.readers.torch_memory import snapshot as memory_snapshot
from perfdoctor.readers.torch_memory import snapshot_ranks
from perfdoctor.records.savings import Saving
from perfdoctor.replay.what_if.sizes import simulated, size_change
from perfdoctor.vocabulary.rulebook import load_rules

GIB = 1 << 30


def run(
    reserved_gib: float, *, busy: int = 10, idle: int = 10, capacity_gib: float = 80, kind: str = "cuda"
) -> Timeline:
    """Steps of `busy` units of compute and `idle` in which the host launches the next kernel, and memory samples."""
    lane = "#" * busy + " " * idle
    host = ["l" + " " * (busy + idle - 1)]
    ops = " " + "q" * (busy + idle - 1)  # it calls the runtime all the time
    drawn = draw(kernels=lane, host=[*host, ops, "o" * (busy + idle)], repeat=6, unit_us=20)
    memory = frame(
        "memory",
        [
            {"process": 100, "start_ns": BASE_NS + at, "end_ns": BASE_NS + at, "allocated_bytes": GIB,
             "reserved_bytes": round(reserved_gib * GIB), "name": kind}
            for at in range(3)
        ],
    )  # fmt: skip
    return replace(
        drawn,
        frames={**drawn.frames, "memory": memory},
        recorded=drawn.recorded | {"memory"},
        devices=(Device(0, 0, "a GPU", memory_bytes=round(capacity_gib * GIB)),),
    )


def test_it_fires_where_the_host_is_slow_and_memory_is_free():
    finding = only_finding("memory-headroom", run(20))
    assert finding.values == {
        "reserved_mib": 20 * 1024,
        "capacity_mib": 80 * 1024,
        "free_percent": pytest.approx(75),
        "idle_percent": pytest.approx(50, abs=5),
        **{name: finding.values[name] for name in ("more_samples_percent", "least_percent", "most_percent")},
    }
    assert finding.saving_ns_per_step == Saving(0, 0, 0)
    assert "At most 20,480 of 81,920 MiB are ever reserved (75 % free)" in summary(finding)


def test_it_stays_silent_just_below_either_threshold():
    assert findings("memory-headroom", run(40.1)) == []
    assert len(findings("memory-headroom", run(39.9))) == 1
    assert findings("memory-headroom", run(20, busy=17, idle=3)) == []
    assert len(findings("memory-headroom", run(20, busy=13, idle=7))) == 1


def test_it_stays_silent_where_the_device_is_the_limit():
    assert findings("memory-headroom", run(20, busy=20, idle=0)) == []


def test_it_stays_silent_where_the_memory_of_the_gpu_is_not_known():
    assert findings("memory-headroom", run(20, capacity_gib=0)) == []


def test_it_stays_silent_where_samples_are_of_the_heap():
    assert findings("memory-headroom", run(20, kind="heap")) == []


def test_it_is_a_symptom_of_launch_bound():
    found = diagnose(run(20), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "launch-bound")
    assert "memory-headroom" in [each.rule for each in above.symptoms]


def test_the_slowest_host_sets_the_pace_of_a_job():
    """The host of rank 1 is slow; the device of rank 0 waits for it in a collective, where it is not idle."""
    slow = run(20)
    lane, host = "#" * 10 + " " * 10, ["l" + " " * 5 + "l" + " " * 13, "o" * 20]
    fast = draw(kernels=lane, nccl=" " * 10 + "=" * 10, host=host, host_ahead=5, repeat=6, unit_us=20, rank=1)
    both = merge([slow, fast])
    finding = only_finding("memory-headroom", both)
    assert finding.values["idle_percent"] == pytest.approx(50, abs=5)
    assert len(prepare(both).places) == 2


def test_a_snapshot_or_the_profilers_totals_tell_the_reserve_as_well(tmp_path):
    drawn = run(20)
    without = replace(
        drawn, frames={**drawn.frames, "memory": Frame.empty("memory")}, recorded=drawn.recorded - {"memory"}
    )
    made = Recording()
    made.free(made.alloc(20 * GIB))
    joined = snapshot_ranks.joined(without, [memory_snapshot.read(made.write(tmp_path / "run.pickle"))])
    assert only_finding("memory-headroom", joined).values["reserved_mib"] == 20 * 1024
    totals = frame(
        "memory_totals",
        [
            {"process": 100, "start_ns": BASE_NS + at, "end_ns": BASE_NS + at, "allocated_bytes": GIB,
             "reserved_bytes": each * GIB, "name": "[memory]"}
            for at, each in enumerate((5, 30, 10))
        ],
    )  # fmt: skip
    given = replace(without, frames={**without.frames, "memory_totals": totals})
    assert only_finding("memory-headroom", given).values["reserved_mib"] == 30 * 1024


def test_it_predicts_the_samples_a_second_of_twice_the_batch_as_what_if_does():
    """Half of each step launches; kernels twice as long fill it, so nearly twice the samples come out of it."""
    drawn = run(20)
    finding = only_finding("memory-headroom", drawn)
    asked = simulated([size_change("batch", "", 2.0, prepare(drawn))], prepare(drawn)).speedup
    shown = [finding.values[name] for name in ("least_percent", "more_samples_percent", "most_percent")]
    assert shown == pytest.approx([100 * (each - 1) for each in asked])
    assert shown[1] > 30
    assert "samples a second are predicted" in summary(finding)

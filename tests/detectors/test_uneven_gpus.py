"""uneven-gpus: of the GPUs of one process, one computes much more than the others."""

from __future__ import annotations

import pytest
from builders import BASE_NS, findings, only_finding, summary, timeline

from perfdoctor.diagnose import diagnose
from perfdoctor.rulebook import load_rules
from perfdoctor.timeline.model import Timeline

MS = 1_000_000


def gpus(*busy_ms: float, step_ms: float = 40, forward: str = "DataParallel.forward", ranks: bool = False) -> Timeline:
    """Four steps, in each of which GPU n computes for the nth number of ms; the process marks its forward pass."""
    kernels, calls, ranges = [], [], []
    for step in range(4):
        at = BASE_NS + round(step * step_ms * MS)
        for device, busy in enumerate(busy_ms):
            where = {"rank": device if ranks else 0, "process": 100 + device if ranks else 100}
            launched = {**where, "correlation": 100 * step + device}
            calls.append({**launched, "start_ns": at - 9_000, "end_ns": at - 8_000, "name": "cudaLaunchKernel"})
            kernels.append({**launched, "device": device, "start_ns": at, "end_ns": at + round(busy * MS), "name": "k"})
        for rank in range(len(busy_ms) if ranks else 1):
            where = {"rank": rank, "process": 100 + rank}
            end = at + round(step_ms * MS) - 11_000
            ranges.append({**where, "start_ns": at - 10_000, "end_ns": end, "name": f"ProfilerStep#{step}"})
            if forward:
                ranges.append({**where, "start_ns": at - 9_500, "end_ns": at + MS, "name": forward})
    return timeline(kernels=kernels, calls=calls, ranges=ranges, collectives=[], copies=[])


def test_it_fires_where_one_gpu_does_more():
    finding = only_finding("uneven-gpus", gpus(30, 20, 20, 10, forward=""), recoverable_share_likely=0.5)
    assert finding.values == {
        "device": 0,
        "busiest_ms": pytest.approx(30),
        "mean_ms": pytest.approx(20),
        "devices": 4,
        "extra_percent": pytest.approx(50),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0, 5 * MS, 10 * MS)
    assert "GPU 0 computes for 30.0 ms a step, 50 % more than the mean of 4 GPUs (20.0 ms)" in summary(finding)


def test_nothing_is_promised_where_the_busiest_is_not_waited_for():
    assert only_finding("uneven-gpus", gpus(15, 5)).saving_ns_per_step.likely == 0


def test_it_stays_silent_just_below_either_threshold():
    assert findings("uneven-gpus", gpus(23.9, 16.1)) == []  # 19.5 % above the mean
    assert len(findings("uneven-gpus", gpus(24.1, 15.9))) == 1
    assert findings("uneven-gpus", gpus(3, 0.7)) == []  # 1.15 of 40 ms
    assert len(findings("uneven-gpus", gpus(3, 0.5))) == 1  # 1.25 ms


def test_it_stays_silent_where_a_gpu_only_holds_a_context():
    assert findings("uneven-gpus", gpus(30, 1)) == []


def test_it_stays_silent_where_each_gpu_has_a_process():
    """Ranks that differ are rank-skew's finding."""
    assert findings("uneven-gpus", gpus(30, 15, ranks=True)) == []


def test_it_stands_alone_where_no_data_parallel_is_there():
    found = diagnose(gpus(30, 15, forward=""), list(load_rules().values())).findings
    assert "uneven-gpus" in [each.rule for each in found]

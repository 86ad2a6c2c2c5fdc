"""data-parallel: one process drives several GPUs with nn.DataParallel."""

from __future__ import annotations

import pytest
from builders import BASE_NS, findings, only_finding, summary, timeline

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Timeline
from perfdoctor.vocabulary.rulebook import load_rules

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


def test_it_fires_where_the_range_and_several_gpus_are_there():
    finding = only_finding("data-parallel", gpus(30, 20, 20, 10), min_part_of_busiest=0.1)
    # mean 20 ms, the first 10 beyond; idle 10, 20, 20 and 30 of 40 ms
    assert finding.values == {
        "devices": 4,
        "idle_percent": pytest.approx(50, abs=1),
        "extra_ms": pytest.approx(10),
    }
    saving = finding.saving_ns_per_step
    assert (saving.low, saving.likely, saving.high) == (0, 10 * MS, 10 * MS)
    assert "drives 4 GPUs from one process" in summary(finding)


def test_nothing_is_promised_where_the_busiest_is_not_waited_for():
    assert only_finding("data-parallel", gpus(15, 5)).saving_ns_per_step.likely == 0


def test_it_stays_silent_where_the_other_gpu_is_just_below_a_part_of_it():
    assert findings("data-parallel", gpus(30, 2.9)) == []
    assert len(findings("data-parallel", gpus(30, 3.1))) == 1


@pytest.mark.parametrize("forward", ["DistributedDataParallel.forward", "forward", ""])
def test_it_stays_silent_where_something_else_runs(forward):
    assert findings("data-parallel", gpus(30, 20, forward=forward)) == []


def test_it_stays_silent_on_one_gpu_and_on_one_for_each_process():
    assert findings("data-parallel", gpus(30)) == []
    assert findings("data-parallel", gpus(30, 20, ranks=True)) == []


def test_uneven_gpus_hang_under_it():
    found = diagnose(gpus(30, 15), list(load_rules().values())).findings
    above = next(each for each in found if each.rule == "data-parallel")
    assert [each.rule for each in above.symptoms] == ["uneven-gpus"]

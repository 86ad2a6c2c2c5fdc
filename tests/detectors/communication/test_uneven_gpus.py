"""uneven-gpus: of the GPUs of one process, one computes much more than the others."""

from __future__ import annotations

import numpy as np
import pytest
from builders import BASE_NS, findings, only_finding, summary, timeline
from msgspec.structs import replace
from several_gpus_cases import MS, gpus

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.model.timeline import Text, Timeline
from perfdoctor.records.savings import Saving
from perfdoctor.vocabulary.rulebook import load_rules


def test_it_fires_where_one_gpu_does_more():
    finding = only_finding("uneven-gpus", gpus(30, 20, 20, 10, forward=""))
    assert finding.values == {
        "device": 0,
        "busiest_ms": pytest.approx(30),
        "mean_ms": pytest.approx(20),
        "devices": 4,
        "extra_percent": pytest.approx(50),
        "work_ms": pytest.approx(10),
        "piece_ms": 0,
    }
    assert finding.saving_ns_per_step == Saving(0, 10 * MS, 10 * MS)
    assert "GPU 0 computes for 30.0 ms a step, 50 % more than the mean of 4 GPUs (20.0 ms)" in summary(finding)


def test_nothing_is_promised_where_the_busiest_is_not_waited_for():
    assert only_finding("uneven-gpus", gpus(15, 5)).saving_ns_per_step.likely == 0


def test_it_stays_silent_just_below_either_threshold():
    assert findings("uneven-gpus", gpus(23.9, 20)) == []  # the same kernel, 19.5 % longer: a slower device
    assert len(findings("uneven-gpus", gpus(24.1, 20))) == 1  # 20.5 %: more to do
    assert findings("uneven-gpus", gpus(3, 0.7)) == []  # 1.15 of 40 ms
    assert len(findings("uneven-gpus", gpus(3, 0.5))) == 1  # 1.25 ms


def of_blocks(*kernels: tuple[str, float, int]) -> Timeline:
    """Each device runs one kernel a step, of so many ms and blocks."""
    drawn = gpus(*(each[1] for each in kernels), forward="")
    frame = drawn.kernels
    at = frame["device"]
    blocks = np.array([each[2] for each in kernels])[at]
    names = Text.of(kernels[device][0] for device in at.tolist())
    return replace(drawn, frames={**drawn.frames, "kernels": frame.with_columns(blocks=blocks, name=names)})


def test_a_little_more_work_is_distinguished_from_a_slower_device_by_its_kernels():
    """30 and 27 ms: 1.5 of 40 beyond the mean. In more blocks, or in another kernel, it is work."""
    assert findings("uneven-gpus", of_blocks(("gemm", 30, 512), ("gemm", 27, 512))) == []
    for larger in (("gemm", 30, 569), ("head", 30, 512)):
        finding = only_finding("uneven-gpus", of_blocks(larger, ("gemm", 27, 512)))
        assert finding.saving_ns_per_step.high == 1.5 * MS


def test_what_a_slower_device_takes_longer_is_taken_off():
    """12 ms more than the other: 2 of them in the kernel that both run, at 10 % more; 6 beyond the mean less 2."""
    kernels, calls = [], []
    for step in range(4):
        at = BASE_NS + 50 * MS * step
        for device, pieces in enumerate(([("gemm", 22), ("head", 10)], [("gemm", 20)])):
            start = at
            for number, (name, took) in enumerate(pieces):
                launched = {"rank": 0, "process": 100, "correlation": 100 * step + 10 * device + number}
                calls.append({**launched, "start_ns": at - 9_000, "end_ns": at - 8_000, "name": "cudaLaunchKernel"})
                end = start + took * MS
                kernels.append({**launched, "device": device, "start_ns": start, "end_ns": end, "name": name})
                start = end
    marks = [
        {"rank": 0, "process": 100, "start_ns": BASE_NS + 50 * MS * n - 10_000, "end_ns": BASE_NS + 50 * MS * n + 49 * MS,
         "name": f"ProfilerStep#{n}"} for n in range(4)
    ]  # fmt: skip
    drawn = timeline(kernels=kernels, calls=calls, ranges=marks, collectives=[], copies=[])
    assert only_finding("uneven-gpus", drawn).saving_ns_per_step.high == 4 * MS


def test_it_stays_silent_where_a_gpu_only_holds_a_context():
    assert findings("uneven-gpus", gpus(30, 1)) == []


def test_it_stays_silent_where_each_gpu_has_a_process():
    """Ranks that differ are rank-skew's finding."""
    assert findings("uneven-gpus", gpus(30, 15, ranks=True)) == []


def test_it_stands_alone_where_no_data_parallel_is_there():
    found = diagnose(gpus(30, 15, forward=""), list(load_rules().values())).findings
    assert "uneven-gpus" in [each.rule for each in found]


def test_work_moves_in_whole_layers():
    """24 and 12 ms in kernels of 4: 6 beyond the mean, of which half a kernel stays on the average."""
    kernels, calls, marks = [], [], []
    for step in range(4):
        at = BASE_NS + 40 * MS * step
        for device, count in enumerate((6, 3)):
            for number in range(count):
                launched = {"rank": 0, "process": 100, "correlation": 100 * step + 10 * device + number}
                calls.append({**launched, "start_ns": at - 9_000, "end_ns": at - 8_000, "name": "cudaLaunchKernel"})
                start = at + 4 * MS * number
                kernels.append({**launched, "device": device, "start_ns": start, "end_ns": start + 4 * MS, "name": "k"})
        mark = {"start_ns": at - 10_000, "end_ns": at + 40 * MS - 11_000, "name": f"ProfilerStep#{step}"}
        marks.append({"rank": 0, "process": 100, **mark})
    drawn = timeline(kernels=kernels, calls=calls, ranges=marks, collectives=[], copies=[])
    assert only_finding("uneven-gpus", drawn).saving_ns_per_step == Saving(0, 4 * MS, 6 * MS)

"""Counters of the GPU in a trace of torch.profiler: both shapes of their events, and what is no counter."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from perfdoctor.model.columns import Text
from perfdoctor.readers.kineto.columns import EventTable
from perfdoctor.readers.kineto.counters import counters
from perfdoctor.readers.kineto.trace import read

_KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 0.0, "dur": 500.0,
           "args": {"device": 0, "stream": 7, "correlation": 1}}  # fmt: skip


def trace(path: Path, events: list[dict]) -> Path:
    path.write_text(
        json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [_KERNEL, *events]}), "utf-8"
    )
    return path


def counter(at: float, name: str, device: int = 0, **args: object) -> dict:
    return {
        "ph": "X",
        "cat": "gpu_pm_counter",
        "name": name,
        "pid": device,
        "tid": 0,
        "ts": at,
        "dur": 100.0,
        "args": args,
    }


_TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize("together", [True, False])
def test_counters_are_read_from_one_event_a_sample_or_one_a_counter(tmp_path, together):
    samples = [(0.0, 90.0, 45.5), (100.0, 80.0, 0.0)]
    if together:
        events = [
            counter(at, "sample", **{"SM Active": sm, _TENSOR: str(tensor), "device": 0}) for at, sm, tensor in samples
        ]
    else:
        events = [
            counter(at, name, value=value)
            for at, sm, tensor in samples
            for name, value in (("SM Active", sm), (_TENSOR, tensor))
        ]
    found = read(trace(tmp_path / "rank0.pt.trace.json", events))
    frame = found["gpu_counters"]
    assert "gpu_counters" in found.recorded
    assert frame.floats("sm_active_share").tolist() == [0.9, 0.8]
    assert frame.floats("tensor_active_share").tolist() == pytest.approx([0.455, 0])
    assert (frame.start_ns.tolist(), frame["device"].tolist()) == ([0, 100_000], [0, 0])
    assert f"tensor_active_share: {_TENSOR}" in frame.text("spellings")[0]
    assert frame.name[0] == "kineto"


def test_what_has_no_word_keeps_its_name_and_each_device_its_samples(tmp_path):
    events = [counter(0.0, "sample", my_counter=7), counter(0.0, "sample", device=1, **{"SM Active": 50})]
    found = read(trace(tmp_path / "rank0.pt.trace.json", events))
    others = found["other_gpu_counters"]
    assert (list(others.name), others.floats("amount").tolist()) == (["my_counter"], [7])
    assert found["gpu_counters"].of(device=1).floats("sm_active_share").tolist() == [0.5]
    assert np.isnan(found["gpu_counters"].of(device=0).floats("sm_active_share")).all()


def test_events_without_a_number_are_no_samples(tmp_path):
    found = read(trace(tmp_path / "rank0.pt.trace.json", [counter(0.0, "sample", note="text"), counter(5.0, "sample")]))
    assert "gpu_counters" not in found.recorded
    assert len(found["gpu_counters"]) == 0


def test_a_trace_without_counters_recorded_none(tmp_path):
    assert "gpu_counters" not in read(trace(tmp_path / "rank0.pt.trace.json", [])).recorded


def test_a_long_row_of_samples_is_read_in_the_time_of_its_values():
    count = 200_000
    texts = {
        "name": Text.constant("sample", count),
        "values": Text.of(f'{{"SM Active": {n % 100}}}' for n in range(count)),
    }
    nothing = np.zeros(count, np.int64)
    table = EventTable({"start_ns": np.arange(count) * 1000, "process": nothing, "thread": nothing}, texts)
    begun = time.process_time()
    found = counters(table, 0)
    assert time.process_time() - begun < 1.5
    assert found["gpu_counters"].floats("sm_active_share").tolist() == [n % 100 / 100 for n in range(count)]

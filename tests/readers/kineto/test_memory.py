"""What torch.profiler records of memory (profile_memory=True): totals on the GPU after each change."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from folders import public

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.kineto import trace as kineto
from perfdoctor.vocabulary.rulebook import load_rules

KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "gemm",
    "pid": 0,
    "tid": 7,
    "ts": 5,
    "dur": 9,
    "args": {"device": 0, "stream": 7},
}
OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 11, "tid": 11, "ts": 1, "dur": 2}


def memory(ts: float, allocated: object, reserved: object, **more: object) -> dict[str, object]:
    totals = {
        "Total Allocated": allocated,
        "Total Reserved": reserved,
        "Bytes": 5,
        "Addr": 7,
        "Device Type": 1,
        "Device Id": 0,
    }
    return {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 11, "tid": 11, "ts": ts,
        "args": {**totals, **more},
    }  # fmt: skip


def read(tmp_path: Path, *events: dict[str, object]) -> Timeline:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [KERNEL, OP, *events]}))
    return kineto.read(path)


def test_totals_are_read_with_their_moment(tmp_path):
    timeline = read(tmp_path, memory(3, 100, 400), memory(2.5, 90, 400))
    rows = timeline["memory_totals"]
    columns = ("start_ns", "end_ns", "device", "process", "allocated_bytes", "reserved_bytes")
    assert [rows[name].tolist() for name in columns] == [
        [2500, 3000], [2500, 3000], [0, 0], [11, 11], [90, 100], [400, 400],
    ]  # fmt: skip
    assert "memory_totals" in timeline.recorded
    assert timeline.notes == ()


@pytest.mark.parametrize(
    "event",
    [
        memory(3, 100, 400, **{"Device Type": 0}),  # the host's own memory
        memory(3, None, None),
        memory(3, -1, 400),
        memory(3, "x", "y"),
        {**memory(3, 100, 400), "name": "[OutOfMemory]"},
    ],
)
def test_events_without_totals_of_a_gpu_are_left_out(tmp_path, event):
    timeline = read(tmp_path, event)
    assert len(timeline["memory_totals"]) == 0
    assert "memory_totals" not in timeline.recorded


def test_the_peak_of_each_device_is_known(tmp_path):
    events = [memory(n, used, 900, **{"Device Id": n % 2}) for n, used in enumerate([1, 5, 700, 3, 2, 800])]
    assert [(use.device, use.peak_bytes) for use in memory_uses(read(tmp_path, *events))] == [(0, 700), (1, 800)]


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["qwen-0.5b-h100.json.gz", "bert-small-h100.json.gz", "v100-rank1-of-2.json.gz"])
def test_the_peak_is_the_largest_total_in_the_raw_file(name):
    path = public(f"kineto/{name}")
    rows = [
        event["args"]
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if event.get("name") == "[memory]" and event["args"].get("Device Type") == 1
    ]
    (use,) = diagnose(kineto.read(path), list(load_rules().values())).memory
    assert use.peak_bytes == max(row["Total Allocated"] for row in rows)
    assert use.most_reserved_bytes == max(row["Total Reserved"] for row in rows)
    assert use.events == len(rows)

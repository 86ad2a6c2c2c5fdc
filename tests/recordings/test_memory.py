"""On public memory snapshots: are the numbers those that plain Python and torch's own viewer find in the same file?"""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from folders import public_files
from recorded import of_recordings, recording
from torch_python import torch_python

from perfdoctor.metrics.memory.in_use import replays
from perfdoctor.metrics.memory.peak import memory_uses

FILES = public_files("memory/*.pickle")

pytestmark = pytest.mark.recordings
each_file = of_recordings(FILES)
KEYS = ("total_size", "allocated_size", "active_size", "requested_size")


def raw(path: Path) -> dict[str, Any]:
    return pickle.loads(path.read_bytes())


def block_size(requested: int) -> int:
    return max(512, (requested + 511) // 512 * 512)


@each_file
def test_totals_are_the_sums_of_the_segments(path: Path) -> None:
    (use,) = memory_uses(recording(path).timeline)
    sums = [sum(segment[key] for segment in raw(path)["segments"]) for key in KEYS]
    assert [use.reserved_bytes, use.allocated_bytes, use.active_bytes, use.requested_bytes] == sums


@each_file
def test_the_peak_is_that_of_a_plain_walk_from_the_end_to_the_beginning(path: Path) -> None:
    """The walk knows a block's true size only while it is alive in the end; else the size that was asked for, rounded."""
    whole = raw(path)
    alive = {
        block["address"]: block["size"]
        for segment in whole["segments"]
        for block in segment["blocks"]
        if block["state"] != "inactive"
    }
    reserved, peak, peak_reserved = sum(segment["total_size"] for segment in whole["segments"]), 0, 0
    for event in reversed(next(trace for trace in whole["device_traces"] if trace)):
        if sum(alive.values()) >= peak:
            peak, peak_reserved = sum(alive.values()), reserved
        if event["action"] == "free_completed":
            alive[event["addr"]] = block_size(event["size"])
        elif event["action"] == "alloc":
            del alive[event["addr"]]
        elif event["action"] == "segment_alloc":
            reserved -= event["size"]
        elif event["action"] == "segment_free":
            reserved += event["size"]
    (use,) = memory_uses(recording(path).timeline)
    assert (use.peak_bytes, use.peak_reserved_bytes) == (max(peak, sum(alive.values())), peak_reserved)


@each_file
def test_free_pieces_in_the_end_are_the_inactive_blocks(path: Path) -> None:
    (replay,) = replays(recording(path).timeline)
    inactive = sorted(
        block["size"]
        for segment in raw(path)["segments"]
        for block in segment["blocks"]
        if block["state"] == "inactive"
    )
    assert sorted(replay.free_pieces(10**9).tolist()) == inactive


@pytest.mark.torch
def test_totals_are_those_of_torchs_own_viewer() -> None:
    """The viewer is a file of torch that needs no torch: loading that would take longer than all the rest."""
    program = """
import importlib.util, json, pathlib, pickle, re, sys
torch = importlib.util.find_spec("torch").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("viz", pathlib.Path(torch) / "cuda" / "_memory_viz.py")
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)
viz.Bytes.__repr__ = lambda self: str(self.value)
for path in sys.argv[1:]:
    data = pickle.load(open(path, "rb"))
    text = viz.segsum(data)
    totals = {name: int(re.search(name + r": (\\d+)", text)[1]) for name in ("segments", "total_reserved", "total_allocated")}
    print(json.dumps({**totals, "active": sum(map(viz.calc_active, data["segments"]))}))
"""
    done = subprocess.run([torch_python(), "-c", program, *FILES], capture_output=True, text=True, check=True)
    for path, line in zip(FILES, done.stdout.splitlines(), strict=True):
        timeline = recording(path).timeline
        (use,) = memory_uses(timeline)
        assert json.loads(line) == {
            "segments": len(timeline["memory_segments"]),
            "total_reserved": use.reserved_bytes,
            "total_allocated": use.requested_bytes,  # the viewer counts what was asked for, before rounding
            "active": use.allocated_bytes,
        }, path.name


@of_recordings(path for path in FILES if path.stem.startswith("oom"))
def test_the_failed_request_is_the_one_of_the_log(path: Path) -> None:
    whole = raw(path)
    (event,) = [event for event in whole["device_traces"][0] if event["action"] == "oom"]
    diagnosis = recording(path).diagnosis
    (advice,) = [advice for advice in diagnosis.findings if advice.rule == "out-of-memory"]
    assert advice.values["asked_mib"] * 2**20 == event["size"]
    assert advice.values["device_free_mib"] * 2**20 == event["device_free"]
    assert str(advice.values["line"]).startswith("components/loss.py:")
    assert advice.fixes[0].title.startswith("Use expandable segments")


@each_file
def test_healthy_snapshots_have_no_finding(path: Path) -> None:
    """A cache that is nearly filled at the peak is no fragmentation, and activations of a forward pass are no leak."""
    diagnosis = recording(path).diagnosis
    assert {advice.rule for advice in diagnosis.findings} <= {"out-of-memory"}
    assert [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"] == []

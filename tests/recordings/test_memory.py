"""On public memory snapshots: are the numbers those that plain Python and torch's own viewer find in the same file?"""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from labels import recordings
from torch_python import torch_python

from perfdoctor.diagnosis.engine import diagnose
from perfdoctor.metrics.memory.in_use import replays
from perfdoctor.metrics.memory.peak import memory_uses
from perfdoctor.readers.open import read
from perfdoctor.vocabulary.rulebook import load_rules

FOLDER = recordings()
FILES = sorted((FOLDER / "memory").glob("*.pickle")) if FOLDER and (FOLDER / "memory").is_dir() else []

pytestmark = [
    pytest.mark.recordings,
    pytest.mark.skipif(not FILES, reason="the public recordings are not here: set PERFDOCTOR_RECORDINGS"),
]
each_file = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
KEYS = ("total_size", "allocated_size", "active_size", "requested_size")


def raw(path: Path) -> dict[str, Any]:
    return pickle.loads(path.read_bytes())


def block_size(requested: int) -> int:
    return max(512, (requested + 511) // 512 * 512)


@each_file
def test_totals_are_the_sums_of_the_segments(path: Path) -> None:
    (use,) = memory_uses(read([path]))
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
    (use,) = memory_uses(read([path]))
    assert (use.peak_bytes, use.peak_reserved_bytes) == (max(peak, sum(alive.values())), peak_reserved)


@each_file
def test_free_pieces_in_the_end_are_the_inactive_blocks(path: Path) -> None:
    (replay,) = replays(read([path]))
    inactive = sorted(
        block["size"]
        for segment in raw(path)["segments"]
        for block in segment["blocks"]
        if block["state"] == "inactive"
    )
    assert sorted(replay.free_pieces(10**9).tolist()) == inactive


@each_file
@pytest.mark.torch
def test_totals_are_those_of_torchs_own_viewer(path: Path) -> None:
    program = """
import json, pickle, re, sys
from torch.cuda import _memory_viz as viz
data = pickle.load(open(sys.argv[1], "rb"))
viz.Bytes.__repr__ = lambda self: str(self.value)
text = viz.segsum(data)
told = {name: int(re.search(name + r": (\\d+)", text)[1]) for name in ("segments", "total_reserved", "total_allocated")}
print(json.dumps({**told, "active": sum(map(viz.calc_active, data["segments"]))}))
"""
    done = subprocess.run([torch_python(), "-c", program, str(path)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    timeline = read([path])
    (use,) = memory_uses(timeline)
    assert told == {
        "segments": len(timeline["memory_segments"]),
        "total_reserved": use.reserved_bytes,
        "total_allocated": use.requested_bytes,  # the viewer counts what was asked for, before rounding
        "active": use.allocated_bytes,
    }


def test_the_failed_request_is_the_one_of_the_log() -> None:
    (path,) = [path for path in FILES if path.stem.startswith("oom")]
    whole = raw(path)
    (event,) = [event for event in whole["device_traces"][0] if event["action"] == "oom"]
    diagnosis = diagnose(read([path]), list(load_rules().values()))
    (advice,) = [advice for advice in diagnosis.findings if advice.rule == "out-of-memory"]
    assert advice.values["asked_mib"] * 2**20 == event["size"]
    assert advice.values["device_free_mib"] * 2**20 == event["device_free"]
    assert str(advice.values["line"]).startswith("components/loss.py:")
    assert advice.fixes[0].title.startswith("Use expandable segments")


@each_file
def test_healthy_snapshots_have_no_finding(path: Path) -> None:
    """A cache that is nearly filled at the peak is no fragmentation, and activations of a forward pass are no leak."""
    diagnosis = diagnose(read([path]), list(load_rules().values()))
    assert {advice.rule for advice in diagnosis.findings} <= {"out-of-memory"}
    assert [outcome for outcome in diagnosis.outcomes if outcome.status == "failed"] == []

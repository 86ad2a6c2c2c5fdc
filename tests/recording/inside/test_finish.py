"""What the process behind a recording waits for, and what the run folder says of ranks that did not come."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from perfdoctor.recording.inside import finish
from perfdoctor.recording.tools.torch_profiler import StepWindow
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="0", passes=[PassRecord("torch", state="done")]))
    made.make("torch")
    return made


def report(folder: RunFolder, rank: int, *, ended: bool) -> None:
    known = {
        "pass": "torch",
        "pid": 7,
        "rank": rank,
        "world_size": 3,
        "state": "written",
        "steps_seen": 20,
        "steps_recorded": 10,
    }
    (folder.path / "agents" / f"torch-rank{rank}.json").write_text(json.dumps({**known, "ended": ended}))


def test_it_does_not_wait_where_all_have_ended(folder: RunFolder) -> None:
    for rank in range(3):
        report(folder, rank, ended=True)
    begun = time.monotonic()
    assert finish._awaited(folder, 3, 600) == []
    assert time.monotonic() - begun < 60
    finish.complete(folder, StepWindow(), [], 3)
    assert [each["rank"] for each in folder.manifest.ranks] == [0, 1, 2]
    assert folder.manifest.passes[0].notes == []


def test_traces_are_compressed_only_while_there_is_time(folder: RunFolder) -> None:
    for rank in range(2):
        report(folder, rank, ended=True)
        (folder.path / "torch" / f"rank{rank}.pt.trace.json").write_text("{}")
    finish.complete(folder, StepWindow(), [], 2, compressing_s=-1.0)
    assert folder.manifest.passes[0].files == [f"torch/rank{rank}.pt.trace.json" for rank in range(2)]
    finish.complete(folder, StepWindow(), [], 2)
    assert [file.name for file in folder.files("torch", "*")] == [f"rank{rank}.pt.trace.json.gz" for rank in range(2)]


def test_a_rank_that_is_late_is_named_and_one_that_never_began_is_counted(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "_UNKNOWN_WAIT_S", 0.0)
    report(folder, 0, ended=True)
    assert finish._awaited(folder, 3, 600) == []  # nobody else has begun
    report(folder, 2, ended=False)
    late = finish._awaited(folder, 3, 0.1)
    assert late == ["rank2"]
    finish.complete(folder, StepWindow(), late, 3)
    assert folder.manifest.passes[0].notes == ["rank2: not written in time, and not in this report"]
    finish.complete(folder, StepWindow(), [], 3)
    assert folder.manifest.passes[0].notes[1:] == ["1 of 3 ranks recorded into this folder"]
    assert RunFolder.open(folder.path).manifest.ranks[0]["rank"] == 0

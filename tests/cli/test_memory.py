"""`perfdoctor analyze snapshot.pickle`, by itself and as a shell sees it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from snapshots import MIB, Recording
from typer.testing import CliRunner

import perfdoctor
from perfdoctor.cli.main import app

SOURCE = str(Path(perfdoctor.__file__).parents[1])


def perform(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)])


def as_a_process(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfdoctor.cli.main", "analyze", *map(str, arguments)]
    everything = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=120, cwd=cwd, env=everything)


@pytest.fixture
def failed(tmp_path):
    made = Recording()
    made.alloc(100 * MIB, "work/model.py:4 forward", "work/train.py:30 main")
    made.fail(400 * MIB, 5 * MIB, "work/loss.py:21 cross_entropy")
    return made.write(tmp_path / "rank2.pickle")


def test_a_snapshot_alone_is_a_diagnosis(failed, tmp_path):
    done = as_a_process(failed, "--json", "diagnosis.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "CUDA out of memory" in done.stdout
    assert "rank 2: peak 100 MiB in use, 100 MiB reserved." in done.stdout
    assert "work/model.py:4 forward < work/train.py:30 main" in done.stdout
    assert (tmp_path / "rank2.perfdoctor.html").exists()
    document = json.loads((tmp_path / "diagnosis.json").read_text())
    assert document["run"]["sources"] == [
        {"kind": "memory", "file": "rank2.pickle", "tool_version": "", "ranks": [2], "cut_off": False}
    ]
    assert [finding["rule"] for finding in document["findings"]] == ["out-of-memory"]
    assert (document["memory"][0]["peak_bytes"], document["memory"][0]["by_category"]) == (
        100 * MIB,
        {"activations": 100 * MIB},
    )
    assert document["time"] == []


def test_a_condition_on_it_is_met(failed, tmp_path):
    assert perform(failed, "--no-html", "--quiet", "--fail-on", "out-of-memory").exit_code == 3


def test_a_folder_of_snapshots_is_the_ranks_of_a_job(tmp_path):
    folder = tmp_path / "snapshots"
    folder.mkdir()
    for rank in range(3):
        made = Recording()
        made.alloc((rank + 1) * 30 * MIB, "work/model.py:4 forward")
        made.write(folder / f"memory_rank{rank}.pickle")
    done = perform(folder, "--no-html")
    assert done.exit_code == 0
    assert "3 GPUs · 3 ranks · memory only" in done.stdout
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("rank ")] == [
        "rank 2",
        "rank 1",
        "rank 0",
    ]


def test_a_pickle_with_code_runs_nothing(tmp_path):
    class Bad:
        def __reduce__(self) -> object:
            return os.system, (f"touch {tmp_path / 'proof'}",)

    path = tmp_path / "bad.pickle"
    path.write_bytes(pickle.dumps({"segments": [Bad()], "device_traces": []}))
    done = perform(path, "--no-html")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "would build" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "proof").exists()

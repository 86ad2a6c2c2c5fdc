"""Processes of ours run no code of the user at their start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perfdoctor.system.spawned import Spawned
from perfdoctor.system.tool_process import own_command


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a `sitecustomize` of the user leaves where it ran."""
    left = tmp_path / "left"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(left)!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return left


def test_a_command_of_ours_runs_no_sitecustomize(guest: Path) -> None:
    done = subprocess.run(
        [*own_command("perfdoctor.cli.main"), "--version"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.startswith("perfdoctor ")
    assert not guest.exists()


def test_a_worker_of_ours_runs_no_sitecustomize(guest: Path) -> None:
    worker = Spawned("perfdoctor.cli.main", ["--version"])
    assert worker.answers.read().startswith(b"perfdoctor ")
    worker.end(5)
    assert not guest.exists()

"""Ranks that cannot talk to each other yet find the same new folder, and those of another job another one."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.inside.shared_folder import choose, claim

#: Of a program that has not called init_process_group.
TORCH = SimpleNamespace(distributed=SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False))
NODES = {
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "7",
    "LOCAL_WORLD_SIZE": "4",
    "WORLD_SIZE": "8",
}


def chosen(monkeypatch: pytest.MonkeyPatch, number: int = 1, **environment: str) -> Path:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_"))]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return choose(None, Path("runs"), TORCH, int(environment["WORLD_SIZE"]), number)


def test_ranks_of_two_machines_agree_on_a_folder_by_their_launchers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 1)
    here = chosen(monkeypatch, RANK="0", **NODES)
    monkeypatch.setattr(os, "getppid", lambda: 2)
    assert chosen(monkeypatch, RANK="5", **NODES) == here
    assert here.parent == Path("runs").absolute()


@pytest.mark.parametrize(
    "changed",
    [
        {"TORCHELASTIC_RUN_ID": "8"},
        {"TORCHELASTIC_RESTART_COUNT": "1"},
        {"MASTER_PORT": "29501"},
        {"SLURM_JOB_ID": "3"},
    ],
)
def test_another_job_another_try_and_another_recording_have_other_folders(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    here = chosen(monkeypatch, **NODES)
    assert chosen(monkeypatch, **NODES | changed) != here
    assert chosen(monkeypatch, 2, **NODES) != here


def test_on_one_machine_the_launchers_process_tells_jobs_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = NODES | {"LOCAL_WORLD_SIZE": "8"}
    here = chosen(monkeypatch, **alone)
    assert chosen(monkeypatch, **alone) == here
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert chosen(monkeypatch, **alone) != here


def test_a_rank_claims_its_file_once(tmp_path: Path) -> None:
    for rank in (0, 1):
        claim(tmp_path / "run", rank)
    with pytest.raises(PerfdoctorError, match="holds other files, which are kept"):
        claim(tmp_path / "run", 1)


@pytest.mark.parametrize("other", ["notes.txt", "checkpoints"])
def test_a_folder_with_other_files_is_nobodys_run_folder(tmp_path: Path, other: str) -> None:
    (tmp_path / other).touch()
    with pytest.raises(PerfdoctorError, match="holds other files"):
        claim(tmp_path, 0)
    assert [entry.name for entry in tmp_path.iterdir()] == [other]

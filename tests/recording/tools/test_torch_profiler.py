"""Agents start while the command runs, and in nothing that it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from torch_python import torch_python

from perfdoctor.recording.tools import torch_profiler
from perfdoctor.recording.tools.torch_profiler import PassSettings, StepWindow


@pytest.mark.torch
def test_what_a_command_left_behind_starts_programs_without_an_agent(tmp_path: Path) -> None:
    environment = torch_profiler.environment(
        os.environ, PassSettings("torch", tmp_path, "cpu"), StepWindow(), reports=tmp_path / "agents", nccl=None
    )
    program = [torch_python(), "-c", "import torch"]
    with torch_profiler.while_running(environment) as given:
        subprocess.run(program, env=given, check=True)
        assert len(list((tmp_path / "agents").glob("*.json"))) == 1
    for file in (tmp_path / "agents").iterdir():
        file.unlink()
    subprocess.run(program, env=given, check=True)
    assert list((tmp_path / "agents").iterdir()) == []


def test_where_nothing_can_be_written_the_program_is_started_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "agents").touch()
    environment = torch_profiler.environment(
        {}, PassSettings("torch", tmp_path, "cpu"), StepWindow(), reports=tmp_path / "agents", nccl=None
    )
    with torch_profiler.while_running(environment) as given:
        assert json.loads(given[torch_profiler.VARIABLE])["while"]

"""How many processes may work at once?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfdoctor.errors import UsageError
from perfdoctor.system import processors
from perfdoctor.system.processors import JOBS, worker_count


@pytest.mark.parametrize(
    ("files", "line", "cores"),
    [
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, "0::/a/b", 2.5),
        ({"cpu.max": "50000 100000"}, "0::/", 0.5),
        ({"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, "3:cpu:/a", 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu:/\n2:memory:/x", float("inf")),
        ({}, "0::/", float("inf")),
        ({"kubepods:cri:1/cpu.max": "150000 100000"}, "0::/kubepods:cri:1", 1.5),  # as containers are named
    ],
)
def test_the_quota_is_that_of_the_tightest_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], line: str, cores: float
) -> None:
    for name, text in {**{f"groups/{name}": text for name, text in files.items()}, "proc/self/cgroup": line}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(processors, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(processors, "_CGROUPS", tmp_path / "groups")
    assert processors.quota_cores() == cores


@pytest.mark.parametrize(
    ("asked", "cores", "quota", "workers"),
    [
        ("", 8, float("inf"), 8),
        ("", 8, 2.5, 3),  # the third one has half a core
        ("", 8, 0.2, 1),
        ("3", 8, 1.0, 3),  # who asks knows better
    ],
)
def test_there_are_as_many_workers_as_asked_for_or_as_cores_are_ours(
    monkeypatch: pytest.MonkeyPatch, asked: str, cores: int, quota: float, workers: int
) -> None:
    monkeypatch.setenv(JOBS, asked)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(processors, "quota_cores", lambda: quota)
    assert worker_count() == workers


@pytest.mark.parametrize("asked", ["0", "-1", "two", "1.5", "\N{SUPERSCRIPT TWO}"])
def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv(JOBS, asked)
    with pytest.raises(UsageError, match="no number of processes"):
        worker_count()

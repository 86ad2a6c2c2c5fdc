"""What a killed nsys has left, and what keeps every later one from starting, is taken out of the way; nothing else is."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import real_nsys

from perfdoctor.recording.tools import nsys
from perfdoctor.recording.tools.nsys_sessions import remove_broken


def left_in(folder: Path, name: str, text: str = "", *, ago_s: float = 60.0) -> Path:
    file = folder / "nvidia" / "nsight_systems" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (time.time() - ago_s,) * 2)
    return file


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_an_empty_list_of_sessions_goes_with_its_lock_and_no_other_file_does(temporary: Path) -> None:
    broken, lock = (left_in(temporary, f"NSys-SessionManager{kind}-1-2023.4.4") for kind in ("", ".lock"))
    kept = [
        left_in(temporary, "NSys-SessionManager-2-2025.1", "sessions"),
        left_in(temporary, "NSys-SessionManager.lock-2-2025.1"),
        left_in(temporary, "NSys-SessionManager-3-2025.1", ago_s=0.0),
        left_in(temporary, "NSys-agent-instance-1-2023.4.4"),
    ]
    assert remove_broken() == [broken]
    assert not broken.exists()
    assert not lock.exists()
    assert all(each.exists() for each in kept)


def test_a_link_stays_and_a_folder_that_is_not_there_is_nothing(temporary: Path) -> None:
    assert remove_broken() == []
    link = left_in(temporary, "target").with_name("NSys-SessionManager-1-2023.4.4")
    link.symlink_to("target")
    assert remove_broken() == []
    assert link.is_symlink()


@pytest.mark.nsys
def test_nsys_starts_again(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the empty file it would wait for 30 s, and end without a report."""
    monkeypatch.setenv("PERFDOCTOR_NSYS", real_nsys.nsys())
    tool = nsys.find()
    assert tool is not None
    version = subprocess.run([tool.path, "--version"], capture_output=True, text=True, check=True).stdout
    space = Path("/proc/self/ns/pid").stat().st_ino
    left_in(temporary, f"NSys-SessionManager-{space}-{version.split()[4].rsplit('.', 1)[0]}")
    assert len(remove_broken()) == 1
    command = nsys.command(tool, temporary / "report", ["true"], has_gpu=False, has_range=False)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (temporary / "report.nsys-rep").is_file(), done.stdout + done.stderr

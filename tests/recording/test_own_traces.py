"""What the program's own profiler wrote lies in the run folder afterwards, or is said to lie where it was written."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfdoctor.recording import record as recording
from perfdoctor.system.run_folder import Manifest, PassRecord, RunFolder


def kept(tmp_path: Path) -> tuple[list[str], PassRecord]:
    """The files in the pass's folder, and the record of the pass, of which one process wrote `mine.json` itself."""
    (tmp_path / "mine.json").write_text('{"traceEvents": []}')
    folder = RunFolder.create(tmp_path / "run", Manifest(perfdoctor="0"))
    folder.make("torch")
    report = {"pass": "torch", "pid": 5, "own_traces": [str(tmp_path / "mine.json")]}
    (folder.make("agents") / "torch-5.json").write_text(json.dumps(report))
    record = PassRecord("torch")
    recording.Session._keep_own_traces(SimpleNamespace(folder=folder), record)
    return sorted(file.name for file in (folder.path / "torch").iterdir()), record


def test_it_is_copied(tmp_path: Path) -> None:
    files, record = kept(tmp_path)
    assert files == ["own-5.pt.trace.json"]
    assert record.notes == []


def test_where_the_disk_is_full_no_part_of_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def filling(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", filling)
    files, record = kept(tmp_path)
    assert files == []
    assert record.notes == ["the program's own trace mine.json was not copied: No space left on device"]

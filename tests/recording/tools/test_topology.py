"""The table of links is kept where nvidia-smi prints it; otherwise there is no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.readers.machine import topology as reader
from perfdoctor.recording.tools import topology

TABLE = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\t0-31\t0\nGPU1\tNV12\t X \t32-63\t1\n"


def tool(folder: Path, body: str) -> str:
    """A folder to be PATH, with an nvidia-smi that does this."""
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    file.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_the_table_is_kept_as_printed_and_can_be_read(tmp_path, monkeypatch):
    (tmp_path / "table").write_text(TABLE, "utf-8")
    monkeypatch.setenv("PATH", tool(tmp_path, f'[ "$*" = "topo -m" ] && cat {tmp_path}/table'))
    target = tmp_path / "topology.txt"
    assert topology.store(target)
    assert target.read_text("utf-8") == TABLE
    assert "NV12" in list(reader.read(target)["links"].name)


@pytest.mark.parametrize("body", ["echo no devices; exit 9", "echo no table", "exit 0"])
def test_where_it_prints_none_there_is_no_file(body, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", tool(tmp_path, body))
    assert not topology.store(tmp_path / "topology.txt")
    assert not (tmp_path / "topology.txt").exists()


def test_one_that_hangs_is_abandoned(tmp_path, monkeypatch):
    monkeypatch.setattr(topology, "_TIMEOUT_S", 0.2)
    monkeypatch.setenv("PATH", tool(tmp_path, "exec sleep 30"))
    assert not topology.store(tmp_path / "topology.txt")


def test_without_nvidia_smi_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not topology.store(tmp_path / "topology.txt")

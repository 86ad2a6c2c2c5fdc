"""`perfdoctor export` writes the requested file, and never overwrites another one."""

from __future__ import annotations

import gzip
import hashlib
import os

import perfetto_file
import pytest
from folders import FIXTURES
from typer.testing import CliRunner

from perfdoctor.cli.main import app
from perfdoctor.export import perfetto

RECORDING = FIXTURES / "input-bound-single-process" / "torch"


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_a_recording_becomes_a_file_that_reads_back(tmp_path):
    target = tmp_path / "train.pftrace"
    result = run(RECORDING, "--perfetto", target)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert result.stderr.splitlines() == [f"Open {target} at https://ui.perfetto.dev (it stays on your machine)."]
    file = perfetto_file.read(target.read_bytes())
    assert len(file.of("op")) > 100
    assert any("input-wait" in track.name for track in file.tracks.values())
    assert [each.name for each in tmp_path.iterdir()] == ["train.pftrace"], "no draft stays behind"


def test_a_name_that_ends_in_gz_is_compressed(tmp_path):
    run(RECORDING, "--perfetto", tmp_path / "a.pftrace", "--quiet")
    result = run(RECORDING, "--perfetto", tmp_path / "a.pftrace.gz", "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")
    packed = (tmp_path / "a.pftrace.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.pftrace").read_bytes()
    assert len(packed) * 2 < len(gzip.decompress(packed))


def test_the_same_recording_gives_the_same_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        run(RECORDING, "--perfetto", tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize("name", ["mine.pftrace", "mine.pftrace.gz"])
def test_ours_is_replaced_and_an_empty_file_is_filled(tmp_path, name):
    target = tmp_path / name
    target.touch()
    assert run(RECORDING, "--perfetto", target).exit_code == 0
    first = target.read_bytes()
    assert run(RECORDING, "--perfetto", target).exit_code == 0
    assert target.read_bytes() == first


@pytest.mark.parametrize(
    "content", [b"my notes", b"\x0a\x03abc", gzip.compress(b"my notes", mtime=0), b"\x1f\x8bbroken"]
)
def test_what_is_not_ours_is_kept(tmp_path, content):
    target = tmp_path / "train.pftrace"
    target.write_bytes(content)
    result = run(RECORDING, "--perfetto", target)
    assert result.exit_code == 1
    what, do = result.stderr.splitlines()
    assert what == f"perfdoctor: --perfetto {target} exists and was not written by perfdoctor export"
    assert do == "  → Choose another file, or remove it."
    assert target.read_bytes() == content


def test_a_recording_is_never_overwritten(tmp_path):
    (trace,) = RECORDING.glob("*.json*")
    copy = tmp_path / trace.name
    copy.write_bytes(trace.read_bytes())
    before = hashlib.sha256(copy.read_bytes()).hexdigest()
    result = run(copy, "--perfetto", copy)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"perfdoctor: --perfetto {copy} is one of the recordings\n")
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == before


def test_without_a_format_it_is_a_usage_error():
    result = run(RECORDING)
    assert result.exit_code == 2
    assert (
        result.stderr
        == "perfdoctor: there is no output file\n  → Give one: --perfetto train.pftrace, or --sqlite train.db.\n"
    )


def test_a_missing_folder_is_refused_in_two_lines(tmp_path):
    target = tmp_path / "nowhere" / "a.pftrace"
    result = run(RECORDING, "--perfetto", target)
    assert result.exit_code == 1
    what, do = result.stderr.splitlines()
    assert what == f"perfdoctor: --perfetto {target} cannot be written: No such file or directory"
    assert do.startswith("  → ")


def test_a_disk_that_fills_up_leaves_no_half_file(tmp_path, monkeypatch):
    def some(*_):
        yield b"first"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(perfetto, "render", some)
    result = run(RECORDING, "--perfetto", tmp_path / "a.pftrace")
    assert result.exit_code == 1
    assert "cannot be written: No space left on device" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_was_recorded_without_time_is_refused(tmp_path):
    log = tmp_path / "topo.txt"
    log.write_text("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n")
    result = run(log, "--perfetto", tmp_path / "a.pftrace")
    assert result.exit_code == 1
    assert "nothing in this recording has timestamps" in result.stderr
    assert not (tmp_path / "a.pftrace").exists()


def test_a_device_is_written_to_directly():
    assert run(RECORDING, "--perfetto", os.devnull).exit_code == 0


def test_help_has_an_example():
    result = run("--help")
    assert result.exit_code == 0
    assert "--perfetto train.pftrace" in result.stdout

"""Wrong input gives one line with the problem and one with the next step, and nothing is lost."""

from __future__ import annotations

import gzip
import hashlib
import os
import sqlite3
from pathlib import Path

import pytest
from folders import FIXTURES

from perfdoctor.cli import main as program
from perfdoctor.readers.open import read

TRACE = FIXTURES / "cpu-slow-input-fixed" / "torch" / "rank0.pt.trace.json.gz"
EXPORT = FIXTURES / "cpu-slow-input-nsys" / "nsys" / "profile.sqlite"


def analyze(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str = "--no-html"
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `perfdoctor analyze PATH --no-html`."""
    monkeypatch.setattr("sys.argv", ["perfdoctor", "analyze", str(path), option])
    try:
        code = program.main()
    except SystemExit as stop:
        code = stop.code
    seen = capsys.readouterr()
    return int(code or 0), seen.out, seen.err


def refused_in_two_lines(code: int, out: str, err: str) -> None:
    assert code == 1
    assert out == ""
    assert "Traceback" not in err
    what, do = err.strip().splitlines()
    assert what.startswith("perfdoctor: ")
    assert do.strip().startswith("→ ")


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def other_database(path: Path) -> Path:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE photos (id INTEGER)")
    return path


WRONG = {
    "empty.json": b"",
    "empty.sqlite": b"",
    "empty.nsys-rep": b"",
    "nothing.json.gz": gzip.compress(b""),
    "zero-byte.gz": b"\x1f\x8b",
    "text.txt": b"Dear diary, today the training was slow.\n",
    "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
    "noise.bin": hashlib.sha256(b"noise").digest() * 64,
    "other.json": b'{"name": "a package", "version": "1.0"}',
    "list.json": b"[1, 2, 3]",
    "no-events.json": b'{"schemaVersion": 1, "traceEvents": []}',
    "half-a-key.json": b'{"schemaVersion": 1, "traceEv',
    "header-only.sqlite": b"SQLite format 3\x00",
    "execution-trace.json": b'{"schema": "1.0.1", "pid": 1, "nodes": [{"name": "[pytorch|profiler|execution_graph|thread]", "id": 1}]}',
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_no_recording_is_refused_in_two_lines(name, tmp_path, capsys, monkeypatch):
    path = write(tmp_path / name, WRONG[name])
    refused_in_two_lines(*analyze(path, capsys, monkeypatch))
    assert path.read_bytes() == WRONG[name]
    assert [child.name for child in tmp_path.iterdir()] == [name]


def test_a_path_that_does_not_exist_is_refused(tmp_path, capsys, monkeypatch):
    refused_in_two_lines(*analyze(tmp_path / "gone.json", capsys, monkeypatch))


def test_a_folder_without_recordings_is_refused(tmp_path, capsys, monkeypatch):
    write(tmp_path / "notes.txt", b"none here")
    refused_in_two_lines(*analyze(tmp_path, capsys, monkeypatch))


def test_a_database_of_something_else_is_refused(tmp_path, capsys, monkeypatch):
    refused_in_two_lines(*analyze(other_database(tmp_path / "photos.sqlite"), capsys, monkeypatch))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path, capsys, monkeypatch):
    path = write(tmp_path / "trace.json", b"{}")
    path.chmod(0)
    refused_in_two_lines(*analyze(path, capsys, monkeypatch))


def cuts(data: bytes, count: int) -> list[int]:
    return sorted({round(len(data) * part / count) for part in range(count)} | {1, 2, 15, 16, 17, 100, len(data) - 1})


@pytest.mark.parametrize("kind", ["trace", "trace-gz", "export"])
def test_a_recording_cut_anywhere_is_refused_or_diagnosed_with_a_note(kind, tmp_path, capsys, monkeypatch):
    whole = {
        "trace": gzip.decompress(TRACE.read_bytes()),
        "trace-gz": TRACE.read_bytes(),
        "export": EXPORT.read_bytes(),
    }[kind]
    for cut in cuts(whole, 6):
        path = write(tmp_path / f"cut-{cut}", whole[:cut])
        code, out, err = analyze(path, capsys, monkeypatch)
        if code:
            refused_in_two_lines(code, out, err)
        else:
            assert "Notes" in out, cut
        assert path.read_bytes() == whole[:cut]
    assert len(list(tmp_path.iterdir())) == len(cuts(whole, 6))


def test_a_whole_recording_is_diagnosed(capsys, monkeypatch):
    code, out, _ = analyze(TRACE, capsys, monkeypatch)
    assert code == 0
    assert "input-wait" in out


def test_a_report_overwrites_nothing_that_perfdoctor_did_not_write(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    precious = write(tmp_path / "rank0.perfdoctor.html", b"<p>my thesis</p>")
    code, _, _ = analyze(TRACE, capsys, monkeypatch, "--verbose")
    assert code == 0
    assert precious.read_bytes() == b"<p>my thesis</p>"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_given_twice_is_read_once_and_it_is_said(tmp_path):
    """A rank that is read twice would wait for itself."""
    original = FIXTURES / "communication-exposed" / "torch"
    ranks = sorted(original.iterdir())
    again = tmp_path / f"again-{ranks[0].name}"
    again.write_bytes(ranks[0].read_bytes())
    once, twice = read(ranks), read([*ranks, again])
    assert twice.ranks == once.ranks
    assert [len(twice[signal]) for signal in twice] == [len(once[signal]) for signal in once]
    assert f"{again.name} is left out: it is a copy of {ranks[0].name}." in twice.notes
    assert f"{ranks[0].name} was given twice, and is read once." in read([*ranks, ranks[0]]).notes

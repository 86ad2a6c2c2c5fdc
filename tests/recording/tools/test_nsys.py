"""The command line for nsys, and how its files and messages are read."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from perfdoctor.recording.tools import nsys

OPTIONS = "trace output sample cpuctxsw wait kill stop-on-exit show-output export stats capture-range capture-range-end"
OLD = nsys.Nsys("/n/nsys", "2022.1", frozenset(OPTIONS.split()))


def stand_in(folder: Path, body: str) -> str:
    file = folder / "nsys"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


def test_the_defaults_that_end_the_training_are_never_left(tmp_path: Path) -> None:
    command = nsys.command(OLD, tmp_path / "x", ["python", "t.py"], has_gpu=True, has_range=True)
    assert {"--kill=none", "--capture-range-end=stop", "--capture-range=cudaProfilerApi", "--wait=primary"} <= set(
        command
    )
    assert {"--sample=none", "--cpuctxsw=none", "--trace=cuda,nvtx,osrt"} <= set(command)
    assert command[-2:] == ["python", "t.py"]


def test_without_a_gpu_cuda_is_not_traced_and_nothing_waits_for_its_range(tmp_path: Path) -> None:
    command = nsys.command(OLD, tmp_path / "x", ["python"], has_gpu=False, has_range=False)
    assert "--trace=nvtx,osrt" in command
    assert not any("capture-range" in word for word in command)


def test_only_options_that_exist_are_used(tmp_path: Path) -> None:
    bare = nsys.Nsys("/n/nsys", "x", frozenset({"trace", "output"}))
    assert len(nsys.command(bare, tmp_path / "x", ["p"], has_gpu=True, has_range=True)) == 2 + 2 + 1
    new = nsys.Nsys("/n/nsys", "x", frozenset({"trace", "output", "discard-environment"}))
    assert "--discard-environment=true" in nsys.command(new, tmp_path / "x", ["p"], has_gpu=False, has_range=False)
    assert nsys.keeps_environment(bare)
    assert not nsys.keeps_environment(new)


def test_what_cannot_be_started_or_has_no_options_is_trouble_and_not_an_error(tmp_path: Path) -> None:
    assert "does not start" in nsys._probed(str(tmp_path / "none")).trouble
    assert "lists no --trace" in nsys._probed(stand_in(tmp_path, "echo hello")).trouble


@pytest.mark.nsys
def test_the_real_one_lists_what_we_use() -> None:
    found = nsys.find()
    if found is None:
        pytest.skip("no nsys: run scripts/install-nsys")
    assert found.trouble == ""
    assert found.version.startswith("20")
    assert {
        "trace",
        "output",
        "sample",
        "cpuctxsw",
        "wait",
        "kill",
        "capture-range",
        "capture-range-end",
    } <= found.options


def test_a_report_is_found_and_a_raw_stream_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "nsys.log"
    log.write_text(
        "Generating '/tmp/x.qdstrm'\nImporter error status: An unknown error occurred.\nGenerated:\n    /x\n"
    )
    assert nsys.report_of(tmp_path / "p") is None
    assert "made no report: Importer error" in nsys.explain(log, None)
    (tmp_path / "p.qdstrm").write_text("x")
    made = nsys.report_of(tmp_path / "p")
    assert made is not None
    assert "its importer failed" in nsys.explain(log, made)
    (tmp_path / "p.nsys-rep").write_text("x")
    assert nsys.explain(log, nsys.report_of(tmp_path / "p")) == ""


def test_on_a_full_disk_the_raw_stream_that_nsys_left_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    full = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    raw = tmp_path / "nsys-report-5ab1.qdstrm"
    raw.write_bytes(b"x")
    began = raw.stat().st_mtime_ns
    assert nsys.explain(tmp_path / "nsys.log", None, began).endswith(f"the disk is full; what it recorded is in {raw}")
    assert nsys.explain(tmp_path / "nsys.log", None, began + 1).endswith("the disk is full")  # of an earlier run


def test_a_raw_stream_that_an_ended_nsys_left_is_moved_to_where_its_report_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stem, raw = tmp_path / "train", tmp_path / "nsys-report-5ab1.qdstrm"
    raw.write_bytes(b"x")
    began = raw.stat().st_mtime_ns
    assert nsys.keep_stream(stem, began + 1) is None  # of an earlier run
    with raw.open("rb"):
        assert nsys.keep_stream(stem, began) is None  # another nsys has it open
    (tmp_path / "nsys-report-5ab2.qdstrm").write_bytes(b"y")
    assert nsys.keep_stream(stem, began) is None  # nobody knows which it is
    (tmp_path / "nsys-report-5ab2.qdstrm").unlink()
    kept = nsys.keep_stream(stem, began)
    assert kept == nsys.report_of(stem) == tmp_path / "train.qdstrm"
    assert not raw.exists()
    raw.symlink_to(kept)
    kept.rename(tmp_path / "elsewhere")
    assert nsys.keep_stream(stem, 0) is None  # a link of a stranger


def test_what_a_killed_nsys_left_of_its_start_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours, others, strange = (tmp_path / name for name in ("a285-59ba-7fb9-5c5a", "b285-59ba-7fb9-5c5a", "notes"))
    ours.write_bytes(b"serialization::archive TOKEN=secret AGENT={/runs/1}")
    others.write_bytes(b"serialization::archive AGENT={/runs/2}")
    strange.write_bytes(b"/runs/1")
    began = ours.stat().st_mtime_ns
    nsys.remove_requests(began + 1_000_000_000, "/runs/1")  # it is of an earlier run
    assert ours.exists()
    (tmp_path / "c285-59ba-7fb9-5c5a").symlink_to(strange)
    nsys.remove_requests(began, "/runs/1")
    assert sorted(file.name[:4] for file in tmp_path.iterdir()) == ["b285", "c285", "note"]


def test_without_a_log_there_is_still_an_explanation(tmp_path: Path) -> None:
    assert "printed nothing" in nsys.explain(tmp_path / "none.log", None)


def test_events_that_nsys_could_not_process_are_said_although_there_is_a_report(tmp_path: Path) -> None:
    made, log = tmp_path / "t.nsys-rep", tmp_path / "nsys.log"
    made.write_bytes(b"x")
    log.write_text("Generating '/tmp/nsys.qdstrm'\nGenerated:\n    /tmp/t.nsys-rep\n")
    assert nsys.explain(log, made) == ""
    log.write_text(
        "Importer error status: Importation succeeded with non-fatal errors.\n"
        'Value: "std::exception::what: InvalidArgumentException\n'
        '[tag_message*] = Unknown runtime API function index: 468\n"\n'
        "**** Errors occurred while processing the raw events. ****\n"
    )
    assert "Unknown runtime API function index: 468" in nsys.explain(log, made)
    assert "--passes torch" in nsys.explain(log, made)


@pytest.mark.parametrize(("script", "expected"), [
    ("exit 0", ""),
    ("echo 'libdw.so.1: cannot open shared object file' >&2; exit 127", "libdw.so.1"),
])  # fmt: skip
def test_an_importer_that_does_not_start_is_known_before_anything_is_recorded(
    tmp_path: Path, script: str, expected: str
) -> None:
    tool, importer = tmp_path / "target-linux-x64" / "nsys", tmp_path / "host-linux-x64" / "QdstrmImporter"
    for file, text in ((tool, "echo version 2025.3.1.0; echo '  --trace'; echo '  --output'"), (importer, script)):
        file.parent.mkdir()
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    found = nsys._probed(str(tool))
    assert not found.trouble
    assert (expected in found.no_report) if expected else found.no_report == ""

"""A report becomes an export, whole and private, with the real nsys; where it cannot, the error has the next step."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from folders import public
from real_nsys import nsys as nsys_path
from real_nsys import with_its_agent

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.readers.nsys.export import export, is_report, writer_version
from perfdoctor.system import nsys_importer

NEW_HEAD = b"NVIDIA Tegra Profiler Report 2026@2@1@210-262137639646v0.\n\x0bLocal (CLI)"
OLD_HEAD = b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)"
STREAM_HEAD = b"U3w[END]NVIDIA Nsight Systems Stream 2023.4.4.54-234433681190v0!\n"


@pytest.fixture
def real_nsys() -> str:
    return nsys_path()


@pytest.fixture
def no_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PERFDOCTOR_NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def stand_in(folder: Path, script: str) -> str:
    """A program called as nsys is: `export … --output FILE REPORT`; FILE is in $made."""
    path = folder / "nsys"
    path.write_text(f'#!/bin/sh\nmade=$5\n[ "$4" = --output ] || exit 99\n{script}\n', "utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "users"
    folder.mkdir()
    path = folder / "run.nsys-rep"
    path.write_bytes(NEW_HEAD + bytes(5_000))
    return path


def refusal(*arguments: object, **more: object) -> PerfdoctorError:
    with pytest.raises(PerfdoctorError) as caught:
        export(*arguments, **more)  # type: ignore[arg-type]
    assert "\n" not in caught.value.what
    return caught.value


# --- what is a report ---


@pytest.mark.parametrize("head", [NEW_HEAD, OLD_HEAD, STREAM_HEAD])
def test_reports_of_every_age_are_recognised_by_their_content(head):
    assert is_report(head[:64])


@pytest.mark.parametrize("head", [b"", b"SQLite format 3\0", b'{"traceEvents": []}', b"NVIDIA", bytes(64)])
def test_nothing_else_is_taken_for_a_report(head):
    assert not is_report(head)


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (NEW_HEAD, "2026.2.1"),
        (STREAM_HEAD, "2023.4.4"),
        (OLD_HEAD, ""),
        (OLD_HEAD + b"\0\x102022.1.1.2-driver0\0\x132022.2.1.31-5fe97ab\0\x132022.2.1.31-5fe97ab", "2022.2.1"),
    ],
)
def test_the_version_of_the_writer_is_found_where_the_report_has_it(tmp_path, content, version):
    path = tmp_path / "x.nsys-rep"
    path.write_bytes(content)
    assert writer_version(path) == version


# --- without nsys ---


@pytest.mark.usefixtures("no_nsys")
def test_without_nsys_the_error_names_the_writer_and_the_command_to_run_elsewhere(report, tmp_path):
    error = refusal(report, tmp_path / "cache")
    assert error.what == "`run.nsys-rep` was written by Nsight Systems 2026.2.1 and no nsys is installed here"
    assert "nsys export --type sqlite run.nsys-rep, and analyse the .sqlite" in error.do
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("no_nsys")
def test_an_export_that_was_made_before_needs_no_nsys(report, tmp_path):
    made = export(report, tmp_path, stand_in(tmp_path, 'echo whole > "$made"'))
    assert export(report, tmp_path) == made


def test_a_program_that_is_not_there_is_named(report, tmp_path):
    assert (
        refusal(report, tmp_path, "/nowhere/nsys").what == "/nowhere/nsys cannot be started: No such file or directory"
    )


def test_a_report_that_is_not_there_is_named(tmp_path):
    assert refusal(tmp_path / "x.nsys-rep").what == "`x.nsys-rep` cannot be read: No such file or directory"


# --- with a stand-in for nsys ---


def test_the_same_content_is_exported_once_and_other_content_again(report, tmp_path):
    tool = stand_in(tmp_path, 'echo x >> "$0.count"; echo whole > "$made"')
    lines: list[str] = []
    first = export(report, tmp_path, tool, progress=lines.append)
    assert export(report, tmp_path, tool, progress=lines.append) == first
    assert lines == ["Exporting run.nsys-rep with nsys"]
    report.write_bytes(NEW_HEAD + b"other")
    assert export(report, tmp_path, tool) != first
    assert Path(tool + ".count").read_text("utf-8") == "x\nx\n"


def test_nothing_is_written_beside_the_report_nor_left_in_the_cache(report, tmp_path):
    before = hashlib.sha256(report.read_bytes()).hexdigest()
    cache = tmp_path / "cache"
    tool = stand_in(tmp_path, 'touch "$TMPDIR/left" ./left; echo whole > "$made"')
    made = export(report, cache, tool)
    assert list(report.parent.iterdir()) == [report]
    assert list(cache.iterdir()) == [made]
    assert hashlib.sha256(report.read_bytes()).hexdigest() == before


def test_only_its_owner_may_read_an_export(report, tmp_path):
    made = export(report, tmp_path / "cache", stand_in(tmp_path, 'echo whole > "$made"'))
    assert made.stat().st_mode & 0o777 == 0o600
    assert made.parent.stat().st_mode & 0o777 == 0o700


def test_nothing_of_the_users_environment_reaches_nsys(report, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "AKIAIOSFODNN7EXAMPLE")
    made = export(report, tmp_path / "cache", stand_in(tmp_path, 'env > "$made"'))
    assert "AKIA" not in made.read_text("utf-8")


def test_payloads_are_exported_with_an_nsys_that_can_and_left_out_with_an_older_one(report, tmp_path):
    newer = export(report, tmp_path / "newer", stand_in(tmp_path, 'echo "$*" > "$made"'))
    assert "--include-blobs=true" in newer.read_text("utf-8")
    refuses = 'case "$*" in *--include-blobs*) echo "unrecognised option \'--include-blobs=true\'"; exit 1;; esac'
    older = export(report, tmp_path / "older", stand_in(tmp_path, f'{refuses}\necho "$*" > "$made"'))
    assert "blobs" not in older.read_text("utf-8")


def test_only_the_tables_that_are_read_are_asked_for_where_nsys_can(report, tmp_path):
    able = stand_in(tmp_path, 'echo "$*" > "$made"')
    asked = export(report, tmp_path / "able", able).read_text("utf-8")
    assert "--tables=CUPTI_ACTIVITY_KIND_KERNEL.*," in asked
    assert "SAMPLING_CALLCHAINS" not in asked
    assert "--tables" not in export(report, tmp_path / "able", able, whole=True).read_text("utf-8")
    refuses = 'case "$*" in *--tables*) echo "unrecognised option \'--tables=x\'"; exit 1;; esac'
    old = export(report, tmp_path / "old", stand_in(tmp_path, f'{refuses}\necho "$*" > "$made"'))
    assert "--include-blobs=true" in old.read_text("utf-8")


def test_a_whole_export_serves_for_a_part_and_that_of_another_nsys_for_none(report, tmp_path):
    cache, tool = tmp_path / "cache", stand_in(tmp_path, 'echo one > "$made"')
    whole = export(report, cache, tool, whole=True)
    assert export(report, cache, tool) == whole
    stand_in(tmp_path, 'echo "another nsys" > "$made"')
    assert export(report, cache, tool).read_text("utf-8") == "another nsys\n"


def test_an_export_that_failed_halfway_is_not_kept(report, tmp_path):
    tool = stand_in(
        tmp_path, 'echo part > "$made"; echo "Processing [==50% ]"; echo "Exportation error: torn."; exit 1'
    )
    error = refusal(report, tmp_path / "cache", tool)
    assert error.what == "nsys could not export `run.nsys-rep`: Exportation error: torn."
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_nsys_that_was_killed_is_named_as_such(report, tmp_path):
    error = refusal(report, tmp_path, stand_in(tmp_path, "kill -9 $$"))
    assert error.what == "nsys could not export `run.nsys-rep`: it was ended by signal 9"


def test_an_nsys_that_hangs_is_ended_with_all_that_it_started(report, tmp_path, monkeypatch):
    monkeypatch.setattr(nsys_export, "TIMEOUT_S", 0.5)
    tool = stand_in(tmp_path, 'sleep 30 & echo $! > "$0.child"; wait')
    assert "within" in refusal(report, tmp_path / "cache", tool).what
    child = int(Path(tool + ".child").read_text("utf-8"))
    patience = time.monotonic() + 5
    while is_running(child) and time.monotonic() < patience:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text("utf-8").rsplit(")", 1)[1].split()[0] != "Z"


def test_a_full_disk_is_named(report, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 1 << 40, 0))
    error = refusal(report, tmp_path / "cache", stand_in(tmp_path, "echo oops; exit 1"))
    assert error.what.endswith("cache is full")
    assert "XDG_CACHE_HOME" in error.do


def test_a_cache_that_cannot_be_written_is_named(report, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    error = refusal(report, tmp_path / "file" / "cache", stand_in(tmp_path, "exit 0"))
    assert error.what.startswith("`run.nsys-rep` cannot be")


def test_the_cache_lies_where_the_user_keeps_caches(report, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    made = export(report, nsys=stand_in(tmp_path, 'echo whole > "$made"'))
    assert made.parent == tmp_path / "xdg" / "perfdoctor"


def test_a_long_name_fits_into_the_cache(report, tmp_path):
    long = report.rename(report.with_name("ü" * 110 + ".nsys-rep"))
    assert export(long, tmp_path / "cache", stand_in(tmp_path, 'echo whole > "$made"')).exists()


def test_an_nsys_given_by_a_relative_path_is_found(report, tmp_path, monkeypatch):
    stand_in(tmp_path, 'echo whole > "$made"')
    monkeypatch.chdir(tmp_path)
    assert export(report, tmp_path / "cache", "./nsys").exists()


def test_a_stream_without_an_importer_is_refused_with_what_to_run(tmp_path):
    stream = tmp_path / "x.qdstrm"
    stream.write_bytes(STREAM_HEAD)
    error = refusal(stream, tmp_path / "cache", stand_in(tmp_path, "exit 0"))
    assert "raw stream that was never imported" in error.what
    assert "QdstrmImporter" in error.do


# --- with the real one ---


def profiled(nsys_program: str | Path, report: Path) -> list[str]:
    """The command that traces a program that only sleeps, without a GPU."""
    return [str(nsys_program), "profile", "-t", "osrt", "-s", "none", "--cpuctxsw=none", "-o", str(report),
            "/bin/sleep", "0.1"]  # fmt: skip


@pytest.fixture
def recorded(real_nsys: str, tmp_path: Path) -> Path:
    """A report of this machine: a shell that reads files, traced without a GPU."""
    report = tmp_path / "mine" / "run.nsys-rep"
    report.parent.mkdir()
    command = profiled(real_nsys, report)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = with_its_agent(
        lambda: subprocess.run(command, capture_output=True, check=False, env=environment),
        lambda ended: (ended.stdout + ended.stderr).decode(),
    )
    assert report.exists(), done.stdout.decode() + done.stderr.decode()
    return report


@pytest.mark.nsys
def test_a_report_recorded_here_is_recognised_exported_and_read(real_nsys, recorded, tmp_path):
    assert is_report(recorded.read_bytes()[:64])
    made = export(recorded, tmp_path / "cache", real_nsys)
    assert list(recorded.parent.iterdir()) == [recorded]
    timeline = nsys.read(made, name=recorded.name)
    assert "kernels" not in timeline.recorded
    assert timeline.notes[0] == f"No GPU activity was recorded in {recorded.name}."


@pytest.mark.nsys
def test_a_damaged_report_is_refused_with_nsyss_own_message(real_nsys, recorded, tmp_path):
    cut = tmp_path / "cut.nsys-rep"
    cut.write_bytes(recorded.read_bytes()[:2_000])
    error = refusal(cut, tmp_path / "cache", real_nsys)
    assert error.what.startswith("nsys could not export `cut.nsys-rep`: Exportation error")


@pytest.mark.nsys
def test_a_raw_stream_is_imported_and_stays_as_it_is(real_nsys, tmp_path):
    importer = nsys_importer.find(real_nsys)
    assert importer is not None
    folder = tmp_path / "session"
    folder.mkdir()
    stream = folder / "run.qdstrm"
    # An nsys that finds no importer leaves the raw stream, so it runs from a copy without the folder beside it.
    made = without_importer(importer, tmp_path)
    command = profiled(made, folder / "run")
    subprocess.run(command, capture_output=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    if not stream.exists():
        pytest.skip("this nsys leaves no stream without its importer")
    before = stream.read_bytes()
    assert is_report(before[:64])
    timeline = nsys.read(export(stream, tmp_path / "cache", real_nsys))
    assert timeline.sources[0].tool_version
    assert stream.read_bytes() == before


def without_importer(importer: Path, folder: Path) -> Path:
    """The nsys of this importer as a copy of its programs for the target, linked file by file."""
    programs = next(importer.parent.parent.glob("**/target-linux-*"), None) or importer.parent.parent
    copy = folder / "bare" / programs.name
    copy.mkdir(parents=True)
    for file in programs.resolve().iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "nsys").unlink(missing_ok=True)
    shutil.copy(programs / "nsys", copy / "nsys")
    return copy / "nsys"


@pytest.mark.nsys
@pytest.mark.recordings
def test_a_report_of_a_newer_nsys_is_refused_with_both_versions(real_nsys, tmp_path):
    error = refusal(public("nsys/newer-2026.2.nsys-rep"), tmp_path, real_nsys)
    assert "Nsight Systems 2026.2.1, newer than the nsys installed here (20" in error.what


@pytest.mark.nsys
@pytest.mark.recordings
@pytest.mark.parametrize("name", ["sc21/4gpu_bucketcap100mb.qdrep", "ai-profiler/baseline_nvtx.nsys-rep"])
def test_real_reports_are_exported_whole(real_nsys, tmp_path, name):
    made = export(public(f"nsys/{name}"), tmp_path, real_nsys)
    connection = sqlite3.connect(made)
    expected = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    connection.close()
    timeline = nsys.read(made)
    assert len(timeline.kernels) + len(timeline["collectives"]) == expected > 0
    assert timeline.devices[0].name.endswith(("A100-SXM4-40GB", "A100-SXM4-80GB"))


@pytest.mark.nsys
@pytest.mark.recordings
@pytest.mark.parametrize("name", ["sc21/8workers.qdrep", "ai-profiler/firstOptimization.nsys-rep"])
def test_the_tables_that_are_read_say_all_that_the_whole_report_says(real_nsys, tmp_path, name):
    whole, part = (
        export(public(f"nsys/{name}"), tmp_path / str(asked), real_nsys, whole=asked) for asked in (True, False)
    )
    assert part.stat().st_size < whole.stat().st_size / 4
    assert "TARGET_INFO_SYSTEM_ENV" not in tables(part), "the program's environment is not read"
    ours, theirs = nsys.read(part), nsys.read(whole)
    assert (ours.recorded, ours.devices, ours.notes) == (theirs.recorded, theirs.devices, theirs.notes)
    for signal in ours.recorded:
        for column in ours[signal].columns:
            one, other = (list(each[signal].columns[column]) for each in (ours, theirs))
            assert one == other, f"{signal}.{column}"


def tables(export: Path) -> set[str]:
    connection = sqlite3.connect(export)
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    return found


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("sc21/8workers.qdrep", "2021.3.2"),
        ("ai-profiler/baseline_nvtx.nsys-rep", "2022.2.1"),
        ("newer-2026.2.nsys-rep", "2026.2.1"),
    ],
)
def test_real_reports_have_the_version_of_their_writer(name, version):
    path = public(f"nsys/{name}")
    with path.open("rb") as stream:
        assert is_report(stream.read(64))
    assert writer_version(path) == version

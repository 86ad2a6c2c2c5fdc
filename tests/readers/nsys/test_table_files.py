"""Folders of tables, as nsys exports them, are read like the SQLite export of the same report."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from folders import FIXTURES, public
from nsys_tables import written
from real_nsys import nsys as nsys_path

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers import archive, formats
from perfdoctor.readers.nsys import export as nsys_export
from perfdoctor.readers.nsys import table_files
from perfdoctor.readers.open import read
from perfdoctor.system import tool_process

EXPORT = FIXTURES / "healthy" / "nsys" / "profile.sqlite"
KINDS = [("parquetdir", "_pqtdir", ".parquet"), ("arrowdir", "_arwdir", ".arrow")]


@pytest.fixture(scope="module", params=KINDS, ids=[kind for kind, _, _ in KINDS])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, suffix, ending = request.param
    return written(EXPORT, tmp_path_factory.mktemp("tables") / f"profile{suffix}", ending)


def same(one: Timeline, other: Timeline) -> bool:
    """Whether all rows, devices and threads are equal."""
    columns = [(signal, name) for signal in one.frames for name in one[signal].columns]
    return (one.devices, one.thread_names, one.epoch_ns, one.recorded) == (
        other.devices, other.thread_names, other.epoch_ns, other.recorded,
    ) and all(list(one[signal].columns[name]) == list(other[signal].columns[name]) for signal, name in columns)  # fmt: skip


def zipped(folder: Path, target: Path) -> Path:
    """Write a zip archive like those of nsys-jax: a recording beside much else."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, f"{folder.name}/{file.name}")
        archive.writestr("sources/train.py", "import jax\n")
        archive.writestr("dump/module.pb.xz", b"\xfd7zXZ\x00")
        archive.writestr("nvtx_gpu_proj_trace/trace.parquet", b"PAR1")
    return target


def test_a_folder_of_tables_is_the_same_timeline_as_the_sqlite_export(folder):
    found = read([folder])
    assert same(read([EXPORT]), found)
    assert [(source.kind, source.file) for source in found.sources] == [("nsys", folder.name)]


def test_it_is_found_below_a_folder_and_counts_once_beside_its_export(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run" / folder.name)
    assert same(read([EXPORT]), read([tmp_path]))
    shutil.copy(EXPORT, tmp_path / "run" / "profile.sqlite")
    assert [source.file for source in read([tmp_path]).sources] == ["profile.sqlite"]


def test_a_folder_of_such_folders_is_one_job(folder, tmp_path):
    for rank in range(2):
        shutil.copytree(folder, tmp_path / f"rank{rank}{folder.name.removeprefix('profile')}")
    assert read([tmp_path]).ranks == (0, 1)


def test_a_zip_archive_is_read_by_what_it_holds(folder, tmp_path):
    assert same(read([EXPORT]), read([zipped(folder, tmp_path / "profile.zip")]))


def test_an_archive_without_a_recording_is_none(tmp_path):
    """Weights that torch.save wrote are zip archives, of which a folder of runs has many."""
    with zipfile.ZipFile(tmp_path / "weights.pt", "w") as archive:
        archive.writestr("weights/data.pkl", b"\x80\x02.")
    assert formats.of(tmp_path / "weights.pt") is None
    with pytest.raises(PerfdoctorError, match="zip archive without a recording in it"):
        read([tmp_path / "weights.pt"])


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_FREE_BYTES", 1_000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("bomb.sqlite", b"\0" * 10_000_000)
    with pytest.raises(PerfdoctorError, match=r"bomb\.zip would take more than") as refused:
        read([tmp_path / "bomb.zip"])
    assert "Unpack it yourself" in refused.value.do


def test_a_damaged_archive_is_named(folder, tmp_path):
    packed = zipped(folder, tmp_path / "profile.zip")
    raw = bytearray(packed.read_bytes())
    raw[200:4_000] = bytes(3_800)
    packed.write_bytes(raw)
    with pytest.raises(PerfdoctorError, match=r"profile\.zip cannot be unpacked"):
        read([packed])


def test_a_cut_off_archive_is_damaged_and_not_unknown(folder, tmp_path):
    packed = zipped(folder, tmp_path / "profile.zip")
    packed.write_bytes(packed.read_bytes()[:4_000])
    with pytest.raises(PerfdoctorError, match=r"profile\.zip cannot be unpacked"):
        read([packed])


def test_without_nsys_a_report_yields_to_the_tables_beside_it(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / folder.name)
    (tmp_path / "profile.nsys-rep").write_bytes(nsys_export._REPORT)
    monkeypatch.setattr(tool_process, "find", lambda _: None)
    found = read([tmp_path])
    assert same(read([EXPORT]), found)
    assert not any("left out" in note for note in found.notes)


def test_without_arro3_parquet_is_refused_with_the_command_that_installs_it(tmp_path, monkeypatch):
    folder = written(EXPORT, tmp_path / "profile_pqtdir", ".parquet")
    monkeypatch.setattr(table_files, "find_spec", lambda _: None)
    with pytest.raises(PerfdoctorError, match="arro3, which reads them, is not installed") as refused:
        read([folder])
    assert refused.value.do == 'Run: pip install "perfdoctor[arrow]"'


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_table_ends_neither_the_program_nor_names_nothing(folder, tmp_path, seed):
    copy = shutil.copytree(folder, tmp_path / folder.name)
    damaged = next(copy.glob("CUPTI_ACTIVITY_KIND_KERNEL.*"))
    raw, random = bytearray(damaged.read_bytes()), np.random.default_rng(seed)
    raw[: len(raw) // 2] = random.bytes(len(raw) // 2)
    damaged.write_bytes(raw[: -seed * 10 or None])
    with pytest.raises(PerfdoctorError, match="is damaged or cannot be read") as refused:
        read([copy])
    assert "--type sqlite" in refused.value.do


def test_a_folder_of_other_parquet_files_is_no_recording(tmp_path):
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1")
    (tmp_path / "StringIds.parquet").write_bytes(b"PAR1")
    assert formats.of(tmp_path) is None


@pytest.mark.nsys
@pytest.mark.recordings
@pytest.mark.parametrize(("kind", "suffix", "_ending"), KINDS)
def test_what_nsys_exports_is_the_same_in_all_formats(tmp_path, kind, suffix, _ending):
    report = tmp_path / "report.nsys-rep"
    shutil.copy(public("nsys/ai-profiler/baseline_nvtx.nsys-rep"), report)
    for each, output in (("sqlite", "report.sqlite"), (kind, f"report{suffix}")):
        subprocess.run(
            [nsys_path(), "export", "--type", each, "--output", tmp_path / output, report],
            check=True, capture_output=True,
        )  # fmt: skip
    assert same(read([tmp_path / "report.sqlite"]), read([tmp_path / f"report{suffix}"]))

"""The right reader is found, and several files become one job."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest
from folders import FIXTURES, recorded_again

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers.open import read
from perfdoctor.system.progress import ProgressText

HEALTHY = FIXTURES / "healthy" / "torch" / "rank0.pt.trace.json.gz"
EXPORT = FIXTURES / "healthy" / "nsys" / "profile.sqlite"


def test_a_trace_is_recognised_by_its_content_whatever_its_name(tmp_path):
    plain = gzip.decompress(HEALTHY.read_bytes())
    for name, data in (
        ("a.sqlite", HEALTHY.read_bytes()),
        ("b.nsys-rep", plain),
        ("c", plain),
        ("d.txt", HEALTHY.read_bytes()),
    ):
        (tmp_path / name).write_bytes(data)
        assert [source.kind for source in read([tmp_path / name]).sources] == ["kineto"]


def test_a_trace_is_recognised_whose_events_stand_behind_long_lists_of_ranks(tmp_path):
    document = json.loads(gzip.decompress(HEALTHY.read_bytes()))
    events, groups = document.pop("traceEvents"), [{"pg_name": "0", "ranks": list(range(20_000))}]
    document |= {"distributedInfo": {"rank": 1, "world_size": 20_000, "pg_config": groups}, "traceEvents": events}
    (tmp_path / "trace.json").write_text(json.dumps(document))
    timeline = read([tmp_path])
    assert (timeline.ranks, timeline.world_size) == ((1,), 20_000)


def test_an_export_is_recognised_by_its_content_whatever_its_name(tmp_path):
    shutil.copy(EXPORT, tmp_path / "trace.json.gz")
    assert [source.kind for source in read([tmp_path / "trace.json.gz"]).sources] == ["nsys"]


def test_a_folder_of_ranks_is_one_timeline_with_all_ranks():
    timeline = read([FIXTURES / "straggler" / "torch"])
    assert timeline.ranks == (0, 1, 2, 3)
    assert timeline.world_size == 4
    assert len(timeline.sources) == 4


def test_files_given_one_by_one_are_the_same_job_as_their_folder():
    folder = FIXTURES / "straggler" / "torch"
    assert read(sorted(folder.iterdir())).places == read([folder]).places


def test_two_recordings_of_the_same_rank_are_renumbered_with_a_note(tmp_path):
    for name in ("first.json.gz", "second.json.gz"):
        recorded_again(HEALTHY, tmp_path / name)
    timeline = read([tmp_path])
    assert timeline.ranks == (0, 1)
    assert timeline.places == ((0, 0), (1, 0))
    assert any("same rank" in note for note in timeline.notes)


def test_other_files_in_a_folder_are_skipped(tmp_path):
    shutil.copy(HEALTHY, tmp_path / "trace.json.gz")
    (tmp_path / "config.json").write_text(json.dumps({"lr": 0.1, "layers": [1, 2]}))
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "passes": []}))
    (tmp_path / "loss.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "empty.json").write_bytes(b"")
    assert len(read([tmp_path]).sources) == 1


def test_a_report_beside_its_own_export_counts_once(tmp_path):
    shutil.copy(EXPORT, tmp_path / "profile.sqlite")
    (tmp_path / "profile.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 2026@2@1@210-262137639646v0.\n")
    assert [source.file for source in read([tmp_path]).sources] == ["profile.sqlite"]


def test_a_trace_beside_itself_unpacked_counts_once_and_beside_another_one_of_that_name_not(tmp_path):
    packed, plain = tmp_path / "trace.json.gz", tmp_path / "trace.json"
    shutil.copy(HEALTHY, packed)
    plain.write_bytes(gzip.decompress(HEALTHY.read_bytes()))
    for given in ([tmp_path], [plain, packed]):
        timeline = read(given)
        assert [source.file for source in timeline.sources] == ["trace.json.gz"]
        assert "trace.json is left out: it is a copy of trace.json.gz." in timeline.notes
    plain.write_bytes(plain.read_bytes().replace(b"A100", b"H100"))
    assert len(read([tmp_path]).sources) == 2


def test_an_export_of_one_process_has_the_rank_in_its_name(tmp_path):
    for rank in (10, 2, 3):
        recorded_again(EXPORT, tmp_path / f"rank_{rank}.sqlite")
    timeline = read([tmp_path])
    assert [(source.file, source.ranks) for source in timeline.sources] == [
        ("rank_2.sqlite", (2,)), ("rank_3.sqlite", (3,)), ("rank_10.sqlite", (10,)),
    ]  # fmt: skip
    assert timeline.ranks == tuple(sorted({device.rank for device in timeline.devices})) == (2, 3, 10)
    assert not any("rank number" in note or "same rank" in note for note in timeline.notes)


def test_exports_without_ranks_in_their_names_are_numbered_in_the_order_of_these(tmp_path):
    for number in (10, 2, 3):
        recorded_again(EXPORT, tmp_path / f"profile.{number}.sqlite")
    timeline = read([tmp_path])
    assert [source.file for source in timeline.sources] == ["profile.2.sqlite", "profile.3.sqlite", "profile.10.sqlite"]
    assert [source.ranks for source in timeline.sources] == [(0,), (1,), (2,)]
    assert "Nsight Systems records no rank numbers: profile.10.sqlite is shown as rank 2." in timeline.notes
    assert not any("same rank" in note for note in timeline.notes)


def test_progress_names_what_is_being_read(tmp_path):
    """Again for each piece of it, with how much of its bytes are read."""
    lines: list[ProgressText] = []
    read([HEALTHY], lines.append)
    assert set(lines) == {f"Reading {HEALTHY.name}"}
    done = [line.done for line in lines]
    assert (done[0], done[-1]) == (0, HEALTHY.stat().st_size)
    assert done == sorted(done)


@pytest.mark.parametrize("name", ["", "missing.json"])
def test_a_path_without_a_recording_is_refused_with_what_to_do(tmp_path, name):
    with pytest.raises(PerfdoctorError) as error:
        read([tmp_path / name])
    assert error.value.do

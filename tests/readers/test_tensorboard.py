"""Of a folder of TensorBoard's profiler the newest session is read, and the others are named."""

from __future__ import annotations

import gzip
import os

import pytest
from folders import FIXTURES, recorded_again

from perfdoctor.readers.open import read, recordings

TRACE = next((FIXTURES / "input-bound-workers" / "torch").glob("*.json*"))
OLDER = next((FIXTURES / "healthy" / "torch").glob("*.json*"))


def put(folder, session, source=TRACE, name="host0.pt.trace.json.gz", changed=None):
    at = folder / "plugins" / "profile" / session
    at.mkdir(parents=True, exist_ok=True)
    content = source.read_bytes()
    plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    (at / name).write_bytes(gzip.compress(plain) if name.endswith(".gz") else plain)
    if changed is not None:
        os.utime(at / name, (changed, changed))
    return at


def files(folder):
    return sorted(each.file.relative_to(folder).as_posix() for each in recordings([folder], lambda _: None))


def note(timeline):
    return [each for each in timeline.notes if "TensorBoard" in each]


@pytest.mark.parametrize("name", ["host0.pt.trace.json", "host0.pt.trace.json.gz"])
def test_the_newest_session_by_its_name_is_read(tmp_path, name):
    runs = tmp_path / "runs"
    put(runs / "a", "2026_05_04_17_30_00", OLDER, name, changed=2_000_000_000)  # copied here later
    put(runs / "b", "2026_05_04_18_00_00", TRACE, name, changed=1_000_000_000)
    (runs / "b" / "events.out.tfevents.1.host").write_bytes(b"\x18\x00\x00\x00")
    found = read([runs])
    assert files(runs) == [f"b/plugins/profile/2026_05_04_18_00_00/{name}"]
    assert [source.file for source in found.sources] == [name]
    (said,) = note(found)
    assert "runs holds 2 sessions" in said
    assert said.endswith("a/plugins/profile/2026_05_04_17_30_00.")
    assert len(found.kernels) == len(read([TRACE]).kernels)


def test_files_of_one_session_are_ranks(tmp_path):
    put(tmp_path, "2026_05_04_17_30_00")
    put(tmp_path, "2026_05_04_17_30_00", OLDER, "host1.pt.trace.json")
    assert len(files(tmp_path)) == 2
    assert note(read([tmp_path])) == []


def test_sessions_without_a_time_in_their_names_go_by_when_they_were_written(tmp_path):
    put(tmp_path, "first", changed=1_000)
    put(tmp_path, "again", changed=2_000)
    assert files(tmp_path) == ["plugins/profile/again/host0.pt.trace.json.gz"]


def test_a_session_that_is_given_is_read_whatever_is_newer(tmp_path):
    older = put(tmp_path, "2026_05_04_17_30_00")
    put(tmp_path, "2026_05_04_18_00_00")
    assert note(read([older])) == []
    assert len(files(older)) == 1


def test_other_folders_with_dates_are_ranks_as_before(tmp_path):
    for day in ("2026_05_04_17_30_00", "2026_05_04_18_00_00"):
        (tmp_path / day).mkdir()
        recorded_again(TRACE, tmp_path / day / TRACE.name)
    assert len(files(tmp_path)) == 2

"""Files changed at random: every reader is tried, what was found stays mended, and what is wrong is seen as such."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import confined
import forked_readers
import fuzz
import fuzz_cases
import fuzz_child
import fuzz_seeds
import fuzz_targets
import mutations
import pytest
from folders import ROOT

from perfdoctor.errors import PerfdoctorError
from perfdoctor.readers import formats
from perfdoctor.readers.open import read
from perfdoctor.recording.agent.perfdoctor_agent import apart

FOUND = ROOT / "tests" / "found"
#: Each of these files is read by a process of its own, or is a whole run: half a second each.
SLOW = {"nsys-arrow", "nsys-parquet", "ncu-report", "run-folder", "ranks"}


def test_every_format_is_tried():
    tried = {kind for target in fuzz_targets.TARGETS.values() for kind in target.kinds}
    known = {row.kind for row in formats.FORMATS}
    assert known - tried == fuzz_targets.ELSEWHERE, "write a target in benchmarks/fuzz_targets.py"
    assert tried <= known


@pytest.mark.parametrize("file", sorted(FOUND.rglob("*")), ids=lambda file: f"{file.parent.name}-{file.name}")
def test_what_was_found_ends_in_a_diagnosis_or_in_two_lines(tmp_path: Path, file: Path) -> None:
    if file.is_file():
        target = fuzz_targets.TARGETS[file.parent.name]
        for seed in range(2):  # some of them are read alone or beside a recording, as drawn
            report = fuzz.tried_apart(target, file.read_bytes(), Random(seed), tmp_path)
            assert not report["is_wrong"], f"{report['what']}\n{report['trace']}"


# `make fuzz` tries them all: here a few of those that begin at once.
@pytest.mark.parametrize("name", ["kineto", "nsys", "run-folder", "diagnosis.json", "history", "nccl"])
def test_a_few_changed_files_lead_nobody_astray(tmp_path: Path, name: str) -> None:
    result = fuzz.campaign(name, 12, seed=7, keep=tmp_path / "kept", seconds=60)
    assert result.wrong == {}
    assert result.inputs == 12 or name in SLOW


@pytest.mark.thorough
@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_many_changed_files_lead_nobody_astray(tmp_path: Path, name: str) -> None:
    seed = int(time.time())  # others each night: a failure names it
    result = fuzz.campaign(name, 500 if name in SLOW else 5_000, seed=seed, keep=tmp_path / "kept", seconds=3_600)
    assert result.wrong == {}, f"seed {seed}"


# --- the fuzzer itself ---


def tried(tmp_path: Path, use: fuzz_targets.Use) -> dict[str, object]:
    target = fuzz_targets.Target(lambda: [b"x"], mutations.raw, use, "file")
    return fuzz.tried_apart(target, b"x", Random(0), tmp_path)


def test_a_refusal_is_not_wrong(tmp_path: Path) -> None:
    def refuses(_path: Path, _random: Random) -> str:
        raise PerfdoctorError("no", do="Nothing.")

    assert not tried(tmp_path, refuses)["is_wrong"]
    assert not tried(tmp_path, lambda _path, _random: "read")["is_wrong"]


def test_another_error_is_wrong_and_says_where(tmp_path: Path) -> None:
    report = tried(tmp_path, lambda path, _random: str(formats.head_of(path.parent / "file").index(b"y")))
    assert report["is_wrong"]
    assert str(report["what"]).startswith("ValueError")


def test_a_change_outside_of_the_folder_is_wrong_and_does_not_happen(tmp_path: Path) -> None:
    outside = tmp_path / "mine"
    outside.write_text("mine")
    inside = tmp_path / "inside"
    inside.mkdir()

    def writes(path: Path, _random: Random) -> str:
        (path.parent / "beside").write_text("this is allowed")
        with_link = path.parent / "link"
        with_link.symlink_to(outside)
        with_link.write_text("changed")
        return "written"

    report = tried(inside, writes)
    assert report["is_wrong"]
    assert str(report["what"]).startswith("outside: open to write")
    if apart.landlock_version() > 0:
        assert outside.read_text() == "mine"


@pytest.mark.skipif(apart.landlock_version() < 1, reason="this kernel has no Landlock")
def test_a_library_in_c_cannot_write_outside_either(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()

    def copies(path: Path, _random: Random) -> str:
        subprocess.run(
            [sys.executable, "-c", f"open({str(tmp_path / 'other')!r}, 'w')"], check=False, stderr=subprocess.DEVNULL
        )
        return "tried"

    tried(inside, copies)
    assert not (tmp_path / "other").exists()


def test_a_file_is_used_in_full_where_its_reader_says_something_new(tmp_path: Path) -> None:
    used: list[Path] = []

    def use(path: Path, _random: Random) -> str:
        used.append(path)
        return "used"

    target = fuzz_targets.Target(list, mutations.raw, use, "file", reads=lambda path, _random: path.name)
    known: set[str] = set()
    drawn = Random(1)
    found = [fuzz_child._used(target, tmp_path / name, drawn, known) for name in ["a"] * 100 + ["b"]]
    assert (found[0], found[-1], found[1]) == ("used", "used", "read: a")
    assert 2 < len(used) == found.count("used") < 20  # one in twenty besides


@pytest.mark.parametrize("damage", [b"", b"x" * 40])
def test_a_reader_in_a_process_of_its_own_says_the_same_where_it_is_forked(tmp_path: Path, damage: bytes) -> None:
    content = fuzz_seeds.tables(".arrow")[0]
    members = mutations.unpacked(content)
    name = next(each for each in members if each.startswith("StringIds"))
    folder = fuzz_cases.written("", mutations.packed({**members, name: damage or members[name]}), tmp_path)

    def said() -> str:
        try:
            timeline = read([folder])
        except PerfdoctorError as error:
            return error.what
        return f"{timeline!r} {timeline.notes}"

    started = said()
    reading, writing = os.pipe()
    with forked_readers.forked():
        assert said() == started
    os.close(writing)
    assert select.select([reading], [], [], 10)[0]  # the fork, which lives on, does not hold it
    os.close(reading)
    assert ("cannot be read" in started) == bool(damage)


def test_of_a_folder_the_same_is_said_where_files_are_remembered(tmp_path: Path) -> None:
    content, reads = fuzz_seeds.folders_of_ranks()[0], fuzz_targets.alone
    alone = fuzz_targets.outcome(reads, fuzz_cases.written("", content, tmp_path), Random(1))
    for number in range(2):
        (folder := tmp_path / str(number)).mkdir()
        with forked_readers.remembering():
            assert fuzz_targets.outcome(reads, fuzz_cases.written("", content, folder), Random(1)) == alone


def test_too_much_time_and_memory_and_a_crash_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "MOST_SECONDS", 1)
    for slow in (lambda _path, _random: str(time.sleep(30)), lambda _path, _random: str(sum(range(1 << 40)))):
        report = tried(tmp_path, slow)
        assert report["is_wrong"]
        assert str(report["what"]).startswith("more than 1 s")
    large = tried(tmp_path, lambda _path, _random: str(len(bytearray(2 << 30))))
    assert str(large["what"]).startswith("no memory")
    crashed = tried(tmp_path, lambda _path, _random: os.abort())
    assert crashed["what"] == "the process ended with -6"


def test_a_pack_of_files_is_put_on_disk_without_following_its_links(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    members = {
        f"to{mutations.LINK}": b"../../outside",
        "to/file": b"x",
        f"pipe{mutations.PIPE}": b"",
        "a/b.json": b"{}",
    }
    target = fuzz_targets.TARGETS["run-folder"]
    fuzz_cases.written(target.name, mutations.packed(members), tmp_path / "inside")
    assert list((tmp_path / "outside").iterdir()) == []
    assert (tmp_path / "inside" / "given" / "a" / "b.json").read_bytes() == b"{}"
    shutil.rmtree(tmp_path / "inside")


@pytest.mark.parametrize("seed", range(3))
def test_changes_are_those_of_their_seed(seed: int) -> None:
    target = fuzz_targets.TARGETS["diagnosis.json"]
    content = b'{"a": [1, 2.5, "x", null, {"b": true}], "c": -7}'
    first, second = (target.mutation(content, Random(seed)) for _ in range(2))
    assert first == second


def test_an_archive_without_members_is_changed_too() -> None:
    empty = b"PK\5\6" + bytes(18)
    assert mutations.inside_zip([])(empty, Random(1)) != empty

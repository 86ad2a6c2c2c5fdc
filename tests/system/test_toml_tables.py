"""Is what is kept of a file exactly what the file says, whatever happens to what is kept?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perfdoctor.system import toml_tables
from perfdoctor.system.toml_tables import ShippedTables, parsed, shipped_table
from perfdoctor.vocabulary.rulebook import load_rules, rule_files

TEXT = 'whole = 1\nhalf = 0.5\nround = 2.0\nyes = true\ntext = "ä\\u0000"\n[under]\nlist = [[1], ["a"]]\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def written(folder: Path, text: str = TEXT) -> Path:
    path = folder / "one.toml"
    path.write_text(text, "utf-8")
    return path


def kept(folder: Path) -> list[Path]:
    return [path for path in (folder / "cache").rglob("*") if path.is_file()]


def without_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toml_tables, "parsed", lambda _text: pytest.fail("it was parsed"))


def test_the_second_time_nothing_is_parsed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    first = shipped_table(written(folder))
    without_parser(monkeypatch)
    again = shipped_table(written(folder))
    assert repr(again) == repr(first) == repr(parsed(TEXT))  # 2.0 is not 2, True is not 1


def test_another_text_is_read_anew_whatever_its_times_and_size(folder: Path):
    path = written(folder, "a = 1")
    assert shipped_table(path) == {"a": 1}
    before = path.stat()
    path.write_text("a = 2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert shipped_table(path) == {"a": 2}
    assert len(kept(folder)) == 1


@pytest.mark.parametrize("damage", [b"", b"\x81", b"\0" * 100, b"\xff" * 10, b"half", b"bit"])
def test_damage_costs_time_and_nothing_else(folder: Path, damage: bytes):
    shipped_table(written(folder))
    (file,) = kept(folder)
    whole = file.read_bytes()
    damaged = {b"half": whole[: len(whole) // 2], b"bit": whole[:-1] + bytes([whole[-1] ^ 1])}.get(damage, damage)
    file.write_bytes(damaged)
    assert shipped_table(written(folder)) == parsed(TEXT)
    assert file.read_bytes() == whole


@pytest.mark.parametrize("name", ["file", "file/below", "locked"])
def test_a_folder_that_cannot_be_written_to_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    (folder / "file").write_text("")
    (folder / "locked").mkdir(mode=0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / name))
    assert shipped_table(written(folder)) == parsed(TEXT)


@pytest.mark.skipif(sys.platform == "win32", reason="its home is another variable")
def test_a_user_without_a_home_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    assert shipped_table(written(folder)) == parsed(TEXT)


def test_a_text_that_is_no_toml_is_not_kept(folder: Path):
    tables = ShippedTables("one")
    with pytest.raises(ValueError, match="document"):
        tables.read(written(folder, "a ="))
    tables.keep()
    assert kept(folder) == []


def test_rules_from_what_is_kept_are_those_from_their_files(folder: Path, monkeypatch: pytest.MonkeyPatch):
    load_rules.cache_clear()
    first = load_rules()
    without_parser(monkeypatch)
    load_rules.cache_clear()
    assert load_rules() == first
    assert list(first) == [path.stem for path in rule_files()]

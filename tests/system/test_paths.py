"""Files are written whole, and never through what somebody else has laid in their folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfdoctor.cli.report_files import place
from perfdoctor.system import paths
from perfdoctor.system.paths import draft, write_whole


def test_a_file_is_written_whole_with_the_usual_permissions_or_not_at_all(tmp_path: Path) -> None:
    target, plain = tmp_path / "a.json", tmp_path / "plain"
    write_whole(target, b"new")
    plain.touch()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode == plain.stat().st_mode
    with pytest.raises(ValueError), draft(target) as made:  # noqa: PT012
        made.write_bytes(b"half")
        raise ValueError
    assert target.read_bytes() == b"new"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "plain"]


def test_a_folder_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    with draft(tmp_path / "tables", folder=True) as made:
        (made / "kernels").touch()
    assert [file.name for file in tmp_path.iterdir()] == ["tables"]
    assert (tmp_path / "tables" / "kernels").exists()


@pytest.mark.parametrize("target", [".", "..", "/"])
@pytest.mark.parametrize("folder", [False, True])
def test_a_folder_that_one_is_in_is_no_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, folder: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError), draft(Path(target), folder=folder):
        pass
    assert list(tmp_path.iterdir()) == []


def test_nobody_can_know_the_name_of_a_draft_or_lay_a_link_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set()
    for _ in range(8):
        with draft(tmp_path / "report.html") as made:
            names.add(made.name)
    assert len(names) == 8
    yours, folder = tmp_path / "yours", tmp_path / "theirs"
    yours.write_text("yours")
    folder.mkdir()
    monkeypatch.setattr(paths.secrets, "token_hex", lambda size: "0" * 2 * size)
    (folder / f".report.html.{'0' * 16}.tmp").symlink_to(yours)
    with pytest.raises(FileExistsError):
        write_whole(folder / "report.html", b"theirs")
    assert yours.read_text() == "yours"


@pytest.mark.parametrize("to", ["file", "nothing", "pipe", "folder"])
def test_a_link_in_place_of_a_report_is_replaced_and_not_followed(tmp_path: Path, to: str) -> None:
    (tmp_path / "file").write_text("yours")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    target = tmp_path / "report.html"
    target.symlink_to(tmp_path / to)
    with place(target) as made:
        made.write_text("report")
    assert not target.is_symlink()
    assert target.read_text() == "report"
    assert (tmp_path / "file").read_text() == "yours"
    assert not (tmp_path / "nothing").exists()


def test_devices_are_written_to_directly(tmp_path: Path) -> None:
    assert [place(Path(f"/dev/{name}")).__enter__() for name in ("stdout", "null")] == [
        Path("/dev/stdout"), Path("/dev/null"),
    ]  # fmt: skip
    os.mkfifo(tmp_path / "pipe")
    with place(tmp_path / "pipe") as made:
        assert made == tmp_path / "pipe"

"""How does what a stranger may have made come to lie on a disk? As files, links, pipes and folders of one folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import mutations


def written(name: str, content: bytes, folder: Path) -> Path:
    """The content as a new file of this `name`, or as a folder where that is "", in a folder that is empty.

    No link in it is followed.
    """
    if name:
        _new(folder / name, content)
        return folder / name
    root = folder / "given"
    root.mkdir()
    for member, inside in mutations.unpacked(content).items():
        _put(root, member, inside)
    return root


def _put(root: Path, name: str, member: bytes) -> None:
    plain, _, kind = name.partition("@")
    path = root / plain
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.resolve() != path.parent:  # behind a link
            return
        match f"@{kind}":
            case mutations.LINK:
                path.symlink_to(member.decode())
            case mutations.PIPE:
                os.mkfifo(path)
            case mutations.FOLDER:
                path.mkdir()
            case _:
                _new(path, member)
    except (OSError, ValueError):  # two of one name, or a name that no file has
        return


def _new(path: Path, content: bytes) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(opened, "wb") as stream:
        stream.write(content)


def emptied(folder: Path) -> None:
    """Remove all in it: `rmtree` follows no link."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

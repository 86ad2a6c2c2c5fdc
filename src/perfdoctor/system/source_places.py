"""Where in a checkout does a line of the user's own code lie, and where its program?"""

from __future__ import annotations

import shlex
from pathlib import Path

from perfdoctor.patterns import regex

#: `train.py(10): forward`
_LINE = regex(r"(?P<file>[^\n]*?\.py)\((?P<line>\d{1,9})\): ")


def root_of(folder: Path) -> Path:
    """Of the git checkout around the folder; the folder itself where there is none."""
    whole = folder.resolve()
    return next((each for each in (whole, *whole.parents) if (each / ".git").exists()), whole)


def script_of(command: str, root: Path) -> tuple[str, int] | None:
    """The file that the command runs, relative to the root, and its first line; None where it is not there."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    script = next((word for word in words if word.endswith(".py")), "")
    return _inside(Path(script), 1, root) if script else None


def place_of(text: str, root: Path, beside: Path) -> tuple[str, int] | None:
    """File relative to the root, and line, of `train.py(10): forward`, whose path is cut at a folder of `sys.path`.

    `beside`: the program's folder, which is one of them. None where there is no such file in the checkout.
    """
    found = _LINE.match(text)
    if not found:
        return None
    for base in (Path(), beside):
        place = _inside(base / found["file"], max(int(found["line"]), 1), root)
        if place:
            return place
    return None


def _inside(path: Path, line: int, root: Path) -> tuple[str, int] | None:
    try:
        whole = path.resolve()
        if not whole.is_file() or not whole.is_relative_to(root.resolve()):
            return None
        return whole.relative_to(root.resolve()).as_posix(), line
    except (OSError, ValueError):  # a name that no file can have
        return None

"""Where does the history of a project lie?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: A file, or `off`: then nothing is stored.
VARIABLE = "PERFDOCTOR_HISTORY"
OFF = "off"
FOLDER = ".perfdoctor"
FILE = "history.db"
_ROOT_HAS = (".git", "pyproject.toml")


def history_file(start: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """`.perfdoctor/history.db` at the root of the project around `start`, else in the user's data folder.

    None where the user wants none. RuntimeError where neither a project nor a home is known.
    """
    given = environment.get(VARIABLE, "")
    if given:
        return None if given == OFF else Path(given).expanduser()
    root = project_root(start)
    return root / FOLDER / FILE if root else _data_folder(environment) / FILE


def project_root(start: Path) -> Path | None:
    """The nearest folder, from `start` upwards, that a git checkout or a pyproject.toml makes a project."""
    start = start.resolve()
    return next((each for each in (start, *start.parents) if any((each / name).exists() for name in _ROOT_HAS)), None)


def _data_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "perfdoctor"


def make_folder(file: Path) -> None:
    """The folder of the file. A `.perfdoctor` keeps itself out of git: else each run would make the checkout differ."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.name == FOLDER and not (ignore := file.parent / ".gitignore").exists():
        ignore.write_text("*\n", "utf-8")

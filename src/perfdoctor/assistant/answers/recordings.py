"""What is there to diagnose below the root?"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfdoctor.assistant.arguments import Recordings
from perfdoctor.assistant.bounded import Answer, name, page
from perfdoctor.assistant.desk import Desk
from perfdoctor.readers.formats import kind_of
from perfdoctor.report import json_document
from perfdoctor.report.words.wording import counted
from perfdoctor.system.run_folder import MANIFEST, RunFolder

#: So many folders and files are looked at; what is behind them is named by its folder.
_MOST_FOLDERS, _MOST_FILES = 5_000, 5_000
#: What to do where there is none.
_NOTHING = (
    "Name another folder as path, or let somebody record there: `perfdoctor run -- python train.py`, or traces of "
    "torch.profiler and reports of Nsight Systems, Nsight Compute or torch's memory snapshots, copied below the root."
)
#: What nodes left of their ranks is one recording: the folder of all of them.
_OF_A_JOB = ("rank", "machine")


def answer(asked: Recordings, desk: Desk) -> Answer:
    start = desk.root.inside(asked.path)
    found, is_cut = _found(start)
    rows, pages = page(found, asked, lambda each: _row(each, desk))
    where = "the root" if start == desk.root.folder else name(desk.root.name(start))
    said = f"{counted(len(found), 'recording')} below {where}"
    more = f"{said}, and more in further folders: name one of them as path." if is_cut else f"{said}."
    more += "" if found or is_cut else f" {_NOTHING}"
    lines = [more, *(f"{json.dumps(row['path'], ensure_ascii=False)} ({row['kind']})" for row in rows)]
    return Answer("\n".join(lines), {"recordings": rows, **pages, "is_cut": is_cut})


def _found(start: Path) -> tuple[list[tuple[Path, str]], bool]:
    """Run folders and recordings with what they are; nothing inside of a run folder. Links are not followed."""
    found: list[tuple[Path, str]] = []
    files_left, folders_left = _MOST_FILES, _MOST_FOLDERS
    if start.is_file():
        return [(start, kind)] if (kind := kind_of(start)) else [], False
    for folder, folders, files in os.walk(start):
        here = Path(folder)
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        folders_left -= 1
        files_left -= len(files)
        if folders_left < 0 or files_left < 0:
            return found, True
        if MANIFEST in files and _is_run(here):
            found.append((here, "run"))
            folders.clear()
            continue
        if here != start and (kind := kind_of(here)):
            found.append((here, kind))
            folders.clear()
            continue
        found += _files(here, sorted(files))
    return found, False


def _is_run(folder: Path) -> bool:
    try:
        return RunFolder.open(folder) is not None
    except Exception:  # noqa: BLE001 of a later version: it is one
        return True


def _files(folder: Path, files: list[str]) -> Iterator[tuple[Path, str]]:
    job = None
    for each in files:
        file = folder / each
        if file.is_symlink() or not file.is_file():
            continue
        try:
            kind = "diagnosis" if json_document.file_of(file) else kind_of(file)
        except Exception:  # noqa: BLE001, S112 whoever reads it says why
            continue
        if kind in _OF_A_JOB:
            job = folder, "job"
        elif kind:
            yield file, kind
    if job:
        yield job


def _row(each: tuple[Path, str], desk: Desk) -> dict[str, Any]:
    path, kind = each
    now = path.stat()
    changed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now.st_mtime))
    size = None if path.is_dir() else now.st_size
    return {"path": desk.root.name(path), "kind": kind, "bytes": size, "changed": changed}

"""Which of several recordings in the folder of a TensorBoard profile plugin is meant: the newest?

    runs/train/plugins/profile/2026_05_04_17_30_00/host0.pt.trace.json.gz    one session: its files are ranks of a job
    runs/train/plugins/profile/2026_05_04_18_00_00/host0.pt.trace.json.gz    another one, recorded later

The layout is that of TensorBoard's profile plugin (`plugins/profile/<session>/<host>…`); sessions of all log
folders below the given one are held against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from perfdoctor.patterns import regex

_LAYOUT = ("plugins", "profile")
#: A session is mostly called by its time, as `%Y_%m_%d_%H_%M_%S` or in seconds or milliseconds.
_TIME = regex(r"^\d{4}(_\d\d){5}")
_MOST_NAMED = 5


def session_of(file: Path) -> Path | None:
    """The folder of the session in which a file lies; None in another layout."""
    return file.parent if file.parent.absolute().parts[-3:-1] == _LAYOUT else None


def newest(files: Sequence[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """The files without those of sessions before the newest one; and what is left out, in words."""
    sessions: defaultdict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if session := session_of(file):
            sessions[session].append(file)
    if len(sessions) < 2:
        return list(files), []

    def age(session: Path) -> tuple[bool, str, float, str]:
        """The time in the name where there is one; else when a file in the session was last changed."""
        named = session.name if _TIME.match(session.name) else ""
        changed = max((file.stat().st_mtime for file in sessions[session] if file.exists()), default=0.0)
        return bool(named), named, changed, session.name

    first, *others = sorted(sessions, key=age, reverse=True)
    left_out = {file for session in others for file in sessions[session]}
    named = ", ".join(str(each.relative_to(folder)) for each in others[:_MOST_NAMED])
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    note = (
        f"{folder.absolute().name} holds {len(sessions)} sessions of TensorBoard's profiler: "
        f"{first.relative_to(folder)}, the newest, is analysed. Give one of the others by itself: {named}{more}."
    )
    return [file for file in files if file not in left_out], [note]

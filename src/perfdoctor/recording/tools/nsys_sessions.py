"""Does a file that a killed nsys has left keep each later one from starting, and is it taken out of the way?

All nsys of a machine share a list of their sessions, a file below the folder for temporary files. One that is killed
while it makes that file leaves it empty. From then on each nsys waits for it in vain, ends after 30 s ("The timeout
expired."), and leaves an agent that holds the lock beside it (seen with 2023.4.4). Without both files the next one
makes them anew, and whoever holds the old lock holds back nobody.
"""

from __future__ import annotations

import stat
import tempfile
import time
from pathlib import Path

_LIST, _LOCK = "NSys-SessionManager-", "NSys-SessionManager.lock-"
#: One that starts now fills the file within milliseconds.
_LEFT_S = 10.0


def remove_broken() -> list[Path]:
    """Remove lists of sessions that were left empty, with their locks, and return them. One that may not be removed
    stays.
    """
    folder = Path(tempfile.gettempdir()) / "nvidia" / "nsight_systems"
    try:
        found = [each for each in folder.iterdir() if each.name.startswith(_LIST)]
    except OSError:  # no nsys has run here
        return []
    return [each for each in found if _is_removed(each)]


def _is_removed(sessions: Path) -> bool:
    try:
        known = sessions.lstat()
        if not stat.S_ISREG(known.st_mode) or known.st_size or time.time() - known.st_mtime < _LEFT_S:
            return False
        sessions.with_name(sessions.name.replace(_LIST, _LOCK, 1)).unlink(missing_ok=True)
        sessions.unlink()
    except OSError:
        return False
    return True

"""Where does perfdoctor keep for the user what it need not make twice?"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder, which may not exist yet. RuntimeError where neither XDG_CACHE_HOME nor a home is known."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "perfdoctor"

"""Where does perfdoctor keep what it need not make twice, and is a text a path on this machine?"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder, which may not exist yet. Raises RuntimeError if XDG_CACHE_HOME and the home are unknown."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "perfdoctor"


def is_plain(text: str) -> bool:
    """Whether `text` is neither an address nor a pattern of names; an existing name with `*` or `[` is a path too."""
    return "://" not in text and (not any(mark in text for mark in "*?[") or Path(text).exists())

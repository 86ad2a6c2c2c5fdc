"""Where does perfdoctor keep what it need not make twice, and is a text a path on this machine?"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder, which may not exist yet. RuntimeError where neither XDG_CACHE_HOME nor a home is known."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "perfdoctor"


def is_plain(text: str) -> bool:
    """Neither an address nor a pattern of names; what is there under a name with `*` or `[` is a path as well."""
    return "://" not in text and (not any(mark in text for mark in "*?[") or Path(text).exists())

"""Is what was given a path on this machine, for which nothing has to be listed or fetched?"""

from __future__ import annotations

from pathlib import Path


def is_plain(text: str) -> bool:
    """Neither an address nor a pattern of names; what is there under a name with `*` or `[` is a path as well."""
    return "://" not in text and (not any(mark in text for mark in "*?[") or Path(text).exists())

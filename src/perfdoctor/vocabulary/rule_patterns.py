"""Which rules does a text name, by an id or a pattern of ids (`*-copies`)? The same for commands and for Python."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from perfdoctor.patterns import regex
from perfdoctor.vocabulary import nearest

_PATTERN = regex(r"[*?\[]")


def fitting(pattern: str, known: Collection[str]) -> list[str]:
    """The ids that fit, in the order of `known`; [] where none does."""
    return [name for name in known if fnmatchcase(name, pattern)]


def near(name: str, known: Collection[str], listed_by: str = "perfdoctor rules") -> str:
    """What to do where `name` fits none that is `known`: the nearest ones, or the command that lists them."""
    listed = f"`{listed_by}` lists them."
    return listed if _PATTERN.search(name) else nearest.near(name, known, listed)

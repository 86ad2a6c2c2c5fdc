"""In which numbers, and in which words, do two JSON reports of one recording differ?

Numbers, ids, statuses, keys and their order must be the same; words may be said better. A word is what only people read
(`WORDS`); numbers in a sentence are compared as well, since a sentence that names another number says something else.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Keys under which everything is for people: sentences, headings, links, and the version of perfdoctor itself.
WORDS = frozenset((
    "title", "summary", "why", "how", "notes", "confidence_because", "not_a_problem_when", "references", "label",
    "columns", "what", "do", "error", "perfdoctor",
))  # fmt: skip
#: Entries of a list that are held against each other by this key, not by their position, which is a difference of its own.
_ID = "rule"
#: Not the one of a name: bf16, H100.
_NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:[.,]\d+)*")
_MISSING = "(missing)"

Kind = Literal["number", "numbers in words", "words"]


@dataclass(frozen=True)
class Difference:
    """`kind`: a "number" is all that must not differ, ids and keys too."""

    kind: Kind
    key: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Renamed:
    """What the new code calls keys and whole text values of the old one. `patterns`: the same for values with a part
    of their own, as regular expressions and what they become.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    patterns: Mapping[str, str] = field(default_factory=dict)

    def value(self, old: str) -> str:
        """The new code's name of a text value."""
        for pattern, new in self.patterns.items():
            if found := re.fullmatch(pattern, old):
                return found.expand(new)
        return self.values.get(old, old)


def renamed(file: Path) -> Renamed:
    """From TOML: `[keys]`, `[values]` and `[patterns]`, each `old = "new"`. All of a text is renamed, never a part."""
    document = tomllib.loads(file.read_text("utf-8"))
    return Renamed(*(document.get(table, {}) for table in ("keys", "values", "patterns")))


def differences(old: Any, new: Any, names: Renamed | None = None) -> Iterator[Difference]:
    """Of two parsed reports, or of what was raised instead."""
    yield from _differing("", _in_new_names(old, names or Renamed()), new)


def _in_new_names(old: Any, names: Renamed) -> Any:
    if isinstance(old, dict):
        return {
            names.keys.get(key, key): value if key in WORDS else _in_new_names(value, names)
            for key, value in old.items()
        }
    if isinstance(old, list):
        return [_in_new_names(each, names) for each in old]
    return names.value(old) if isinstance(old, str) else old


def _differing(key: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            where = f"{key}.{name}" if key else name
            here, there = old.get(name, _MISSING), new.get(name, _MISSING)
            yield from (_in_words if name in WORDS and name in old and name in new else _differing)(where, here, there)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _of_lists(key, old, new)
    elif type(old) is not type(new) or old != new:
        yield Difference("number", key, old, new)


def _of_lists(key: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[Difference]:
    ids = [[each.get(_ID) if isinstance(each, dict) else None for each in side] for side in (old, new)]
    have_ids = all(None not in side and len(set(side)) == len(side) for side in ids)
    if have_ids and ids[0] != ids[1]:
        yield Difference("number", f"{key}[].{_ID}", *ids)
    elif len(old) != len(new):
        yield Difference("number", f"{key}[]", f"{len(old)} entries", f"{len(new)} entries")
    if have_ids:
        known = dict(zip(ids[1], new, strict=True))
        pairs = [(id_, each, known[id_]) for id_, each in zip(ids[0], old, strict=True) if id_ in known]
    else:
        pairs = [(str(number), *pair) for number, pair in enumerate(zip(old, new, strict=False))]
    for name, one, other in pairs:
        yield from _differing(f"{key}[{name}]", one, other)


def _in_words(key: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield Difference("numbers in words", f"{key}[]", old, new)
            return
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from _in_words(f"{key}[{number}]", *pair)
    elif old != new:
        same = sorted(_NUMBER.findall(str(old))) == sorted(_NUMBER.findall(str(new)))
        yield Difference("words" if same else "numbers in words", key, old, new)

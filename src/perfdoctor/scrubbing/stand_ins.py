"""What stands for a name that is private? One stand-in a name, the same in all files of one copy."""

from __future__ import annotations

from collections import defaultdict

from perfdoctor.patterns import regex

#: How the stand-ins of a kind begin, and under what its removed names are counted.
_COUNTED = {
    "host": "host names", "user": "user names", "project": "paths", "python": "paths", "folder": "paths",
    "path": "paths", "home": "paths", "address": "network addresses", "gpu": "hardware identifiers",
}  # fmt: skip
#: Of a path the kind of file is left: `path-1.tar.gz`.
_ONE = regex(rf"(?:{'|'.join(_COUNTED)})-\d+|path-\d+(?:\.\w+)+")


class StandIns:
    """Numbers names in the order in which they are met, and counts what was removed, by kind.

    `widths`: digits of the numbers of a kind, with which names of files keep their order.
    """

    def __init__(self) -> None:
        self._numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.widths: dict[str, int] = {}
        self._removed: defaultdict[str, set[str]] = defaultdict(set)

    def of(self, kind: str, name: str) -> str:
        """`host-1` of the first host that is met."""
        return f"{kind}-{self.number(kind, name):0{self.widths.get(kind, 1)}}"

    def number(self, kind: str, name: str) -> int:
        """The number of a name among those of its kind, from 1 on."""
        self.removed(_COUNTED[kind], name)
        known = self._numbers[kind]
        return known.setdefault(name, len(known) + 1)

    def removed(self, what: str, name: str) -> None:
        """Count one thing, however often it is removed."""
        self._removed[what].add(name)

    def is_one(self, part: str, kind: str = "") -> bool:
        """May this be a stand-in, of this copy or of the one that is copied? `kind`: and of this kind."""
        return part.startswith(kind) and _ONE.fullmatch(part) is not None

    def counts(self) -> dict[str, int]:
        """How many different things of each kind were removed, most first."""
        found = {what: len(names) for what, names in self._removed.items()}
        return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))

"""Which rank does the name of a recording say: `rank_3.nsys-rep`, `trace-rank3.json.gz`, `worker3`?"""

from __future__ import annotations

import re

from perfdoctor.patterns import regex

_RANK = regex(r"(?<![a-z])(?:rank|worker)[_-]?(\d{1,8})(?!\d)", re.IGNORECASE)


def rank_in(file_name: str) -> int | None:
    """The rank that the name says; None where it says none."""
    found = _RANK.search(file_name)
    return int(found[1]) if found else None

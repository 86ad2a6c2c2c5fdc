"""What number does a cell of Nsight Compute's table hold, in base units?

ncu writes numbers as the locale has them (`4,963,609.95`, `4.963.609,95`, `4 963 609,95`) and, by default, in
the unit that makes them shortest (`usecond`, `Gbyte/second`, `cycle/nsecond`). Prefixes count in thousands:
32,768 bytes are written as 32.77 Kbyte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import nan

from perfdoctor.patterns import regex

#: Base units. `count` is everything that is no time, size, rate or share.
NS, BYTES, HZ, SHARE, BYTES_PER_SECOND, COUNT = "ns", "byte", "hz", "share", "byte/s", "count"

_TIMES_NS = {
    "s": 1e9, "sec": 1e9, "second": 1e9, "ms": 1e6, "msecond": 1e6, "us": 1e3, "µs": 1e3, "usecond": 1e3, "ns": 1.0,
    "nsecond": 1.0,
}  # fmt: skip
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALED = regex(r"^([KMGTP]?)(i?)(hz|bytes?|b|inst|sectors?|cycles?|threads?|warps?|requests?)$", re.IGNORECASE)

#: Spaces (also hard and narrow ones) and apostrophes only ever separate thousands.
_GAPS = regex(r"[\s'’_]")
_NUMBER = regex(r"[+-]?[\d.,]*\d[\d.,]*(?:[eE][+-]?\d+)?")


@lru_cache(maxsize=1024)
def unit_of(unit: str) -> tuple[float, str]:
    """The factor to the base unit, and the base unit: `usecond` → (1000.0, "ns")."""
    unit = unit.strip()
    if unit == "%":
        return 0.01, SHARE
    if unit.lower() in _TIMES_NS:
        return _TIMES_NS[unit.lower()], NS
    above, slash, below = unit.partition("/")
    factor, counted = _scaled(above)
    if not slash:
        return (factor, counted) if counted in (BYTES, HZ) else (factor, COUNT)
    if below.lower() in _TIMES_NS and counted in (BYTES, "cycle"):
        per_second = factor * 1e9 / _TIMES_NS[below.lower()]
        return per_second, BYTES_PER_SECOND if counted == BYTES else HZ
    return factor, unit if below.lower() in _TIMES_NS else COUNT


def _scaled(unit: str) -> tuple[float, str]:
    found = _SCALED.match(unit)
    if not found:
        return 1.0, COUNT
    prefix, binary, what = found[1].upper(), bool(found[2]), found[3].lower().rstrip("s")
    power = list(_PREFIXES).index(prefix)
    factor = 1024.0**power if binary else _PREFIXES[prefix]
    return factor, {"b": BYTES, "byte": BYTES, "hz": HZ, "cycle": "cycle"}.get(what, COUNT)


def has_decimal_comma(cells: Iterable[str]) -> bool:
    """Do these cells, all of one table, write 0,5 for a half? Each that can be read in one way only has a vote."""
    votes = 0
    for cell in cells:
        text = _GAPS.sub("", cell)
        if ("," in text or "." in text) and _NUMBER.fullmatch(text):
            votes += _vote(text.lower().partition("e")[0])
    return votes > 0


def _vote(text: str) -> int:
    """1: decimals follow the comma, -1: they follow the point, 0: both are possible."""
    comma, point = text.rfind(","), text.rfind(".")
    if comma >= 0 and point >= 0:
        return 1 if comma > point else -1
    mark, other = (",", 1) if comma >= 0 else (".", -1)
    groups = text.lstrip("+-").split(mark)
    if len(groups) > 2:
        return -other  # several of them: thousands
    # Three digits behind one mark may be thousands or thousandths, but not behind 0 or more than three digits.
    in_thousands = len(groups[1]) == 3 and 1 <= len(groups[0]) <= 3 and groups[0] != "0"
    return 0 if in_thousands else other


def number(cell: str, *, decimal_comma: bool) -> float:
    """The number in a cell; NaN where there is none. Of a metric with instances, `12 (1; 2; 9)`, the one in front."""
    found = _NUMBER.match(_GAPS.sub("", cell.partition("(")[0]))
    text = found[0] if found else ""
    if not text or text != _GAPS.sub("", cell.partition("(")[0]):
        return nan
    text = text.replace(".", "").replace(",", ".") if decimal_comma else text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return nan

"""When was a sample taken? Tools write times in five ways, most of them without a time zone.

`nvidia-smi` writes local time without its zone: such a time is kept as if it were UTC, and put on a recording's clock
only if a single zone makes both overlap (see `readers/side_files.py`). Without times only the order counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np

from perfdoctor.model.timeline import Ints
from perfdoctor.patterns import regex

SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * SECOND_NS
#: `nvidia-smi dmon` and `dcgmi dmon` print a row a second by default.
USUAL_INTERVAL_NS = SECOND_NS
#: The year 2001: larger values are ns since 1970, smaller ones a time of day.
EPOCH_NS = 10**18
#: The year 2200: later times are damage, and could overflow.
_LATEST_NS = 7_258_118_400 * SECOND_NS

_DATE_TIME = regex(
    r"(\d{4})[-/]?(\d\d)[-/]?(\d\d)[T ]+(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s*(Z|UTC|[+-]\d\d:?\d\d)?$", re.ASCII
)
_TIME = regex(r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?$", re.ASCII)
_UNIX = regex(r"\d{9,19}(\.\d{1,9})?$", re.ASCII)


def parsed(text: str) -> tuple[int, bool] | None:
    """A time as ns, and whether it is certainly UTC; None if it is no time.

    Without a zone: ns since 1970 as if it were UTC; without a date: ns since midnight.
    """
    text = text.strip()
    if _UNIX.match(text):
        return (_unix(text), True) if _unix(text) < _LATEST_NS else None
    if found := _DATE_TIME.match(text):
        *numbers, fraction, zone = found.groups()
        try:
            year, month, day, hour, minute, second = map(int, numbers)
            whole = int(datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp())
        except ValueError:
            return None
        at = (whole - _offset_s(zone)) * SECOND_NS + _fraction_ns(fraction)
        return (at, zone is not None) if 0 <= at < _LATEST_NS else None
    if found := _TIME.match(text):
        hours, minutes, seconds, fraction = found.groups()
        return (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * SECOND_NS + _fraction_ns(fraction), False
    return None


def _unix(text: str) -> int:
    """Seconds, milliseconds, microseconds or nanoseconds since 1970, recognised by their size."""
    whole, _, fraction = text.partition(".")
    digits = 19 - len(str(int(whole)))  # 19 digits are nanoseconds of our time
    scale = int(10 ** max(digits - digits % 3, 0))
    return int(whole) * scale + (int(fraction.ljust(9, "0")) * scale // SECOND_NS if fraction else 0)


def _fraction_ns(fraction: str | None) -> int:
    return int((fraction or "0").ljust(9, "0"))


def _offset_s(zone: str | None) -> int:
    """How far a zone, such as +05:30, is ahead of UTC."""
    if zone is None or zone in ("Z", "UTC"):
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def times_of(texts: Sequence[str]) -> tuple[Ints, bool] | None:
    """The times of a column, and whether they are certainly UTC; None where any of them is no time.

    Times of day continue after midnight: one that is half a day earlier than the one before is of the next day.
    """
    known = {text: parsed(text) for text in set(texts)}
    if not texts or None in known.values():
        return None
    times = np.array([known[text][0] for text in texts], dtype=np.int64)  # type: ignore[index]
    dated = all(found is not None and found[1] for found in known.values())
    if not dated and times.max() < EPOCH_NS:
        times += _DAY_NS * np.concatenate([[0], np.cumsum(np.diff(times) < -_DAY_NS // 2)])
    return times, dated


def ordered(devices: Ints) -> Ints:
    """Times where none are known: the rows of a GPU are one usual interval apart."""
    seen: dict[int, int] = {}
    ticks = np.empty(devices.size, dtype=np.int64)
    for row, device in enumerate(devices.tolist()):
        ticks[row] = seen[device] = seen.get(device, -1) + 1
    return ticks * USUAL_INTERVAL_NS

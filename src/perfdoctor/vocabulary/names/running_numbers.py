"""Which names are one name that counts? `ProfilerStep#3` and `ProfilerStep#4`, `layer 1` and `layer 2`."""

from __future__ import annotations

from perfdoctor.patterns import regex

_NUMBER = regex(r"#?\d+")


def without_numbers(name: str) -> str:
    """The name with `#` for each number: `ProfilerStep#`, `layer #`."""
    return _NUMBER.sub("#", name)

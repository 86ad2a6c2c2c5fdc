"""Which part of an answer fits, and by which word is the rest asked for?

A *handle* names what was left out: `devices:8` are the devices from the ninth on, `findings.0.fixes.1.how:900` the rest
of that text. It is given back as `more`, with the other arguments as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from perfdoctor.errors import PerfdoctorError
from perfdoctor.patterns import regex

#: A tokenizer is another program's. Those of language models make one token of some four letters, of three digits, of
#: one or two signs and of each character beyond ASCII; on JSON of ours this counts more than they do.
_TOKEN = regex(r"[A-Za-z]{1,5}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,2}|[^\x00-\x7f]|\s{2,8}")
#: What the entry of a part that was cut takes in `not_shown`.
_ENTRY = 40
#: A part is not cut to less, where there is anything left: one row of numbers, or a line.
_LEAST = 40


class Cut(Struct, frozen=True):
    """One part of an answer that is not whole. `of`: its rows, fields or characters."""

    more: str
    shown: int
    of: int


def tokens(value: Any) -> int:
    """About how many tokens a text, or a value as JSON, is for a language model."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return len(_TOKEN.findall(text))


def fitted(data: dict[str, Any], room: int) -> tuple[dict[str, Any], list[Cut]]:
    """The fields in about `room` tokens, small ones whole, and what was cut."""
    cuts: list[Cut] = []
    return _fields(data, room, "", cuts), cuts


def rest(data: dict[str, Any], handle: str, room: int) -> tuple[dict[str, Any], list[Cut], str]:
    """What a handle names: its rows, fields or text in `rest`; what of that was cut; a sentence about it.

    Raises PerfdoctorError where the answer has no such part.
    """
    at, _, start = handle.rpartition(":")
    value: Any = data
    try:
        for step in at.split("."):
            value = value[int(step) if isinstance(value, list) else step]
        left = _from(value, int(start))
    except (KeyError, IndexError, TypeError, ValueError):
        raise PerfdoctorError(
            f"this answer has no part {handle[:80]!r}", do="Give a `more` of its `not_shown`, and the same arguments."
        ) from None
    cuts: list[Cut] = []
    kept = _cut(left, room, at, cuts, int(start))
    said = f"{at}: {start} of {len(value)} came before, here are {len(kept)}."
    return {"more": handle, "rest": kept}, cuts, said


def _from(value: Any, start: int) -> Any:
    if isinstance(value, dict):
        return dict(list(value.items())[start:])
    if not isinstance(value, (list, str)) or not value[start:]:
        raise TypeError
    return value[start:]


def _cut(value: Any, room: int, at: str, cuts: list[Cut], first: int = 0) -> Any:
    """The value in so many tokens. `first`: how much of it came before."""
    if not isinstance(value, (str, list, dict)) or tokens(value) <= room:
        return value
    if isinstance(value, dict):
        some = _first_fields(value, room)
        if len(some) < len(value):
            cuts.append(Cut(f"{at}:{first + len(some)}", first + len(some), first + len(value)))
        return _fields(some, room, at, cuts)
    shown = _text(value, room) if isinstance(value, str) else list(_rows(value, room, at, cuts, first))
    if len(shown) < len(value):
        cuts.append(Cut(f"{at}:{first + len(shown)}", first + len(shown), first + len(value)))
    return shown


def _text(text: str, room: int) -> str:
    """The begin of the text, up to the end of a line where there is one in its second half."""
    ends = [found.end() for found in _TOKEN.finditer(text)]
    end = ends[min(room, len(ends)) - 1]
    line = text.rfind("\n", 0, end) + 1
    return text[: line if line > end // 2 else end]


def _rows(rows: list[Any], room: int, at: str, cuts: list[Cut], first: int) -> Iterator[Any]:
    """The rows that fit, one at least."""
    for number, row in enumerate(rows):
        size = tokens(row)
        if size > room:
            if not number:
                yield _cut(row, room, f"{at}.{first}", cuts)
            return
        room -= size + 1
        yield row


def _first_fields(data: dict[str, Any], room: int) -> dict[str, Any]:
    """The first fields that have room for the least of each, one at least."""
    some: dict[str, Any] = {}
    for key, value in data.items():
        room -= tokens(key) + 2 + min(tokens(value), _LEAST)
        if some and room < 0:
            break
        some[key] = value
    return some


def _fields(data: dict[str, Any], room: int, at: str, cuts: list[Cut]) -> dict[str, Any]:
    """All fields: the smallest whole, and the room that is left shared equally by the others."""
    sizes = {key: tokens(value) for key, value in data.items()}
    room -= sum(tokens(key) + 2 for key in data)
    kept: dict[str, Any] = {}
    for left, key in zip(range(len(data), 0, -1), sorted(sizes, key=sizes.__getitem__), strict=True):
        share = max(room // left, _LEAST)
        here = f"{at}.{key}" if at else key
        kept[key] = _cut(data[key], share if sizes[key] <= share else max(share - _ENTRY, _LEAST), here, cuts)
        room -= sizes[key] if kept[key] is data[key] else share
    return {key: kept[key] for key in data}

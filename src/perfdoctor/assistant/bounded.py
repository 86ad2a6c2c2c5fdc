"""How does an answer stay short and harmless, whatever was recorded?

Every text is one or several printable lines of bounded length, every list has an end, and what is left out is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from perfdoctor.report.json_report import plain
from perfdoctor.report.words.foreign_text import clean_block, clean_name, shorten

#: Of one text: names are shorter, code of a fix is as long.
LONGEST_TEXT = 2_000
NAME = 160
#: Of the whole answer as JSON: what a model reads at once, about 12,000 tokens.
MOST_BYTES = 48_000

Item = TypeVar("Item")


class Answer(Struct, frozen=True):
    """`text`: a few lines. `data`: the same and more, in fields."""

    text: str
    data: Mapping[str, Any]

    def sent(self) -> tuple[str, dict[str, Any]]:
        """The text and the fields in JSON's types, both bounded."""
        return shorten(clean_block(self.text), LONGEST_TEXT * 4), _bounded(plain(self.data))


def name(text: str) -> str:
    """A name from a recording, shortened for a field."""
    return clean_name(text, NAME)


def page(
    items: Sequence[Item], cursor: str, limit: int, row: Callable[[Item], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The rows from this cursor on that fit, and what says which they are: `total`, `next_cursor` (None at the end)."""
    first = int(cursor)
    rows: list[Any] = []
    room = MOST_BYTES // 2
    for item in items[first : first + limit]:
        made = _bounded(plain(row(item)))
        room -= len(msgspec.json.encode(made))
        if rows and room < 0:
            break
        rows.append(made)
    after = first + len(rows)
    return rows, {"total": len(items), "next_cursor": str(after) if after < len(items) else None}


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(clean_block(value), LONGEST_TEXT)
    if isinstance(value, dict):
        return {clean_name(key, NAME): _bounded(each) for key, each in value.items()}
    return [_bounded(each) for each in value] if isinstance(value, list) else value

"""How does an answer stay short and harmless, whatever was recorded?

Every text is one or several printable lines, every list has an end, and what is left out is said in the first text,
with what to ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from perfdoctor.assistant.fitted import Cut, fitted, rest, tokens
from perfdoctor.report.json_report import plain
from perfdoctor.report.words.foreign_text import clean_block, clean_name, shorten

if TYPE_CHECKING:
    from perfdoctor.assistant.arguments import Bounds

#: Of one text: code of a fix, or prose. Longer ones are strangers'.
LONGEST_TEXT = 10_000
NAME = 160
#: Of an answer's tokens: its text has so many, and the rows of a page so many, where there are as many.
_OF_TEXT, _OF_ROWS = 0.35, 0.45
#: Tokens for the lines that say what is left out.
_ROOM_LEFT = 120
#: Parts that the text names; `not_shown` has all.
_MOST_NAMED = 4

Item = TypeVar("Item")


class Paged(Protocol):
    """Arguments of a tool with rows."""

    @property
    def cursor(self) -> str: ...
    @property
    def limit(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...


class Answer(Struct, frozen=True):
    """`text`: a few lines. `data`: the same and more, in fields."""

    text: str
    data: Mapping[str, Any]

    def sent(self, asked: Bounds) -> tuple[str, dict[str, Any]]:
        """The text and the fields in JSON's types, in as many tokens as were asked for, or the rest that was."""
        data = _clean(plain(self.data))
        if asked.more is not None:
            rest_of, cuts, heading = rest(data, asked.more, round(asked.max_tokens * (1 - _OF_TEXT)))
            return "\n".join([heading, *_left(cuts, None, 0)]), _with(rest_of, cuts)
        after = data.get("next_cursor")
        room = round(asked.max_tokens * _OF_TEXT)
        every = clean_block(self.text).splitlines()
        lines = _lines(every, room)
        kept, cuts = fitted(data, asked.max_tokens - sum(map(tokens, lines)) - _ROOM_LEFT)
        cut = [f"Of this text {len(lines)} of {len(every)} lines are shown; a larger max_tokens shows more."]
        said = _left(cuts, data.get("total") if after else None, int(after or 0))
        return "\n".join([*lines, *cut * (len(lines) < len(every)), *said]), _with(kept, cuts)


def name(text: str) -> str:
    """A name from a recording, shortened for a field."""
    return clean_name(text, NAME)


def page(items: Sequence[Item], asked: Paged, row: Callable[[Item], Any]) -> tuple[list[Any], dict[str, Any]]:
    """The rows from this cursor on that fit, and what says which they are: `total`, `next_cursor` (None at the end)."""
    first = int(asked.cursor)
    rows: list[Any] = []
    room = round(asked.max_tokens * _OF_ROWS)
    for item in items[first : first + asked.limit]:
        made = _clean(plain(row(item)))
        room -= tokens(made)
        if rows and room < 0:
            break
        rows.append(made)
    after = first + len(rows)
    return rows, {"total": len(items), "next_cursor": str(after) if after < len(items) else None}


def _lines(every: list[str], room: int) -> list[str]:
    """The first lines that fit, one at least."""
    kept: list[str] = []
    for line in every:
        room -= tokens(line) + 1
        if kept and room < 0:
            break
        kept.append(line)
    return kept


def _left(cuts: Sequence[Cut], total: int | None, after: int) -> list[str]:
    """The lines that say what is not shown, and how to ask for it."""
    found = []
    if after:
        of = "" if total is None else f" of {total:,}"
        found.append(f'Shown up to {after}{of}; for the next, the same call with cursor="{after}".')
    if cuts:
        named = "; ".join(
            f'{each.more.rpartition(":")[0]} ({each.shown} of {each.of}: more="{each.more}")'
            for each in cuts[:_MOST_NAMED]
        )
        others = f"; {len(cuts) - _MOST_NAMED} further parts in not_shown" * (len(cuts) > _MOST_NAMED)
        how = "the same call with `more` has the rest, with max_tokens more at once"
        found.append(f"Cut short: {named}{others}; {how}.")
    return found


def _with(data: dict[str, Any], cuts: Sequence[Cut]) -> dict[str, Any]:
    if not cuts:
        return data
    return {**data, "not_shown": [{"more": each.more, "shown": each.shown, "of": each.of} for each in cuts]}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(clean_block(value), LONGEST_TEXT)
    if isinstance(value, dict):
        return {clean_name(key, NAME): _clean(each) for key, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value

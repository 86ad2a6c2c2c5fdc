"""What are the ranks and the parts of a step called on the pages?"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.model.place import Place
from perfdoctor.vocabulary import places as names
from perfdoctor.vocabulary.parts import IDLE_PARTS, REST, SHOWN_PARTS

#: Numbers nearer to each other than this look the same in three digits: it is said that they are alike.
ALIKE = 0.005


def place_names(places: Sequence[Place]) -> list[str]:
    """`rank 3`, and its device where a rank has several."""
    return names.place_names([(place.rank, place.device) for place in places])


def in_short(part: str) -> str:
    """The same over a narrow column, which explains it with the whole name."""
    return f"idle: {part.replace('_', ' ')}" if part in IDLE_PARTS or part == REST else in_words(part)


def in_words(part: str) -> str:
    """A part's key as the whole report calls it."""
    return SHOWN_PARTS[part].label if part in SHOWN_PARTS else part.replace("_", " ")

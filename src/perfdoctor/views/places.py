"""What are the ranks and the parts of a step called on the pages?"""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.model.place import Place
from perfdoctor.vocabulary import places as names
from perfdoctor.vocabulary.parts import IDLE_PARTS, REST, SHOWN_PARTS

#: Numbers that differ by less look the same in three digits, and are described as equal.
ALIKE = 0.005


def place_names(places: Sequence[Place]) -> list[str]:
    """`rank 3`, and its device where a rank has several."""
    return names.place_names([(place.rank, place.device) for place in places])


def in_short(part: str) -> str:
    """The short label, for the heading of a column."""
    return f"idle: {SHOWN_PARTS[part].short}" if part in IDLE_PARTS or part == REST else in_words(part)


def in_words(part: str) -> str:
    """The full label of a part, by its key."""
    return SHOWN_PARTS[part].label if part in SHOWN_PARTS else part.replace("_", " ")

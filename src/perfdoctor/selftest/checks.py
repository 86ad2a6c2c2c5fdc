"""What was tried, does it work, and what is to be done if not?"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field


class Verdict(str, Enum):
    """How a check ended. `ABSENT`: there is nothing here to try it with, which is no fault."""

    WORKS = "works"
    LIMITED = "works with limits"
    FAILED = "does not work"
    ABSENT = "not here"


#: Numbers with their unit in their names.
Numbers = Mapping[str, float | int | str | None]


class ToolCheck(Struct, frozen=True):
    """One line of the table: what was `found`, and what to `do` where something is missing.

    `numbers` are those behind the words, for the JSON document.
    """

    name: str
    verdict: Verdict
    found: str
    do: str = ""
    seconds: float = 0.0
    numbers: Numbers = field(default_factory=dict)


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict of several parts: the worst of those that were tried."""
    for verdict in (Verdict.FAILED, Verdict.LIMITED, Verdict.WORKS):
        if verdict in verdicts:
            return verdict
    return Verdict.ABSENT

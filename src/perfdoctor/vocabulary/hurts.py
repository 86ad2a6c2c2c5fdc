"""Which advice was measured to hurt, where, and who measured it?"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from perfdoctor.patterns import regex
from perfdoctor.system.toml_tables import shipped_table

#: `situation items|workers`: the finding is of one of these situations.
SITUATION = "situation "


class Hurt(Struct, frozen=True):
    """`advice`: what is advised; `code`: how its code is known; `where`: when it hurts, all of these conditions.

    `is_left_out`: a fix with that code is; else it says what was `measured`, and where that stands (`source`).
    """

    advice: str
    code: re.Pattern[str]
    where: tuple[str, ...]
    is_left_out: bool
    measured: str
    source: str

    @property
    def said(self) -> str:
        """What a fix says that is given all the same."""
        return f"{self.advice} was measured to hurt ({self.source}): {self.measured}"


def _row(row: dict[str, object]) -> Hurt:
    return Hurt(
        str(row["advice"]),
        regex(str(row["code"])),
        tuple(row["where"]),  # type: ignore[arg-type]
        {"leave out": True, "say": False}[str(row["then"])],
        str(row["measured"]),
        str(row["source"]),
    )


HURTS: tuple[Hurt, ...] = tuple(_row(row) for row in shipped_table(Path(__file__).with_suffix(".toml"))["row"])

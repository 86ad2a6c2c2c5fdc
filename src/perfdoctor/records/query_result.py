"""What does a question in SQL bring?"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from perfdoctor.system.html_table import SHOWN, html_table


class QueryResult(Struct, frozen=True):
    """The answer to a question in SQL.

    `columns`: their names; `rows`: numbers, texts and None. `is_cut`: there are more rows than were asked for.
    `note`: what the rows leave out; "" for nothing.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    is_cut: bool
    note: str = ""

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows.

        Returns:
            HTML that loads nothing and runs no script.
        """
        return html_table(self.columns, self.rows[:SHOWN], len(self.rows))

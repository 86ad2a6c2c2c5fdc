"""What does a question in SQL bring?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perfdoctor.system.html_table import SHOWN, html_table, pandas

if TYPE_CHECKING:
    import pandas as pd


class QueryResult(Struct, frozen=True):
    """The answer to a question in SQL.

    `columns`: their names; `rows`: numbers, texts and None. `is_cut`: there are more rows than were asked for.
    `note`: what the rows leave out; "" for nothing.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    is_cut: bool
    note: str = ""

    def to_pandas(self) -> pd.DataFrame:
        """The answer as a DataFrame.

        Returns:
            A row a row; what is not known is None, or NaN among numbers.

        Raises:
            PerfdoctorError: pandas is not installed: it is an extra, `perfdoctor[pandas]`.
        """
        found: pd.DataFrame = pandas().DataFrame(self.rows, columns=list(self.columns))
        return found

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows.

        Returns:
            HTML that loads nothing and runs no script.
        """
        return html_table(self.columns, self.rows[:SHOWN], len(self.rows))

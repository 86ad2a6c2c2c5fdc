"""What do rows become in a notebook? A table that loads nothing and runs no script, or a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from perfdoctor.errors import PerfdoctorError

#: Of one cell: both ends of a kernel's name are longer.
_MOST = 96
#: Of a long list; the rest is counted.
SHOWN = 20


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """The first of `count` rows under their columns' names, as HTML."""
    head = "".join(f"<th>{_shown(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>{count:,} rows, the first {SHOWN} are shown.</p>" if count > SHOWN else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>{more}'


def pandas() -> Any:
    """Pandas. Raises PerfdoctorError where it is not installed."""
    try:
        import pandas as pd  # noqa: PLC0415 half a second and 84 MB that no command needs
    except ModuleNotFoundError as error:
        raise PerfdoctorError("pandas is not installed", do="Run: pip install 'perfdoctor[pandas]'.") from error
    return pd


def _shown(cell: object) -> str:
    """The cell in one line without what cannot be seen, which may turn the writing round."""
    if cell is None:
        return ""
    text = f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
    text = "".join(each for each in " ".join(text.split()) if each.isprintable())
    return escape(text if len(text) <= _MOST else f"{text[: _MOST - 1]}…")

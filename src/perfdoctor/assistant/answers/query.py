"""What does a recording answer in SQL?"""

from __future__ import annotations

import json
from typing import Any

from perfdoctor.assistant.arguments import Query
from perfdoctor.assistant.bounded import NAME, Answer, name, page
from perfdoctor.assistant.desk import Desk
from perfdoctor.errors import PerfdoctorError
from perfdoctor.export.tables.query import query
from perfdoctor.report.words.foreign_text import clean_block, shorten
from perfdoctor.report.words.wording import counted

#: Rows that can be reached by cursors: a question with more of them asks for sums.
MOST_ROWS = 10_000
#: Of the time that a call may take; the rest is for reading, and for ending in peace.
_SHARE_OF_TIME = 0.7
_SHOWN = 10


def answer(asked: Query, desk: Desk) -> Answer:
    examination = desk.examined(asked.path)
    wanted = min(int(asked.cursor) + asked.limit, MOST_ROWS)
    try:
        found = query(examination, asked.sql, limit=wanted, seconds=desk.seconds * _SHARE_OF_TIME)
    except PerfdoctorError as error:  # whose option is the command's
        error.do = error.do.replace("--seconds", "--timeout of the server")
        raise
    rows, _ = page(found.rows, asked, lambda row: [_cell(each) for each in row])
    after = int(asked.cursor) + len(rows)
    is_more = found.is_cut or after < len(found.rows)
    next_cursor = str(after) if is_more and after < MOST_ROWS else None
    lines = [
        f"{counted(len(rows), 'row')}{', and more' if is_more else ''}.",
        *([found.note] if found.note else []),
        *(json.dumps(row, ensure_ascii=False) for row in rows[:_SHOWN]),
    ]
    data = {"columns": [name(each) for each in found.columns], "rows": rows, "next_cursor": next_cursor}
    return Answer("\n".join(lines), {**data, "is_cut": is_more and next_cursor is None})


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return shorten(" ".join(clean_block(value).split()), NAME) if isinstance(value, str) else value

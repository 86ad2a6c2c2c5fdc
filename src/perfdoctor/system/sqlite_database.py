"""How is an SQLite file handed to sqlite-utils, without what it loads beside it?"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from perfdoctor.system.own_process import without_pandas

if TYPE_CHECKING:
    from sqlite_utils.db import Database


def database(connection: sqlite3.Connection) -> Database:
    """sqlite-utils on this connection. It loads pandas where that is installed, but not in a process of ours."""
    with without_pandas():
        from sqlite_utils.db import Database  # noqa: PLC0415
    return Database(connection, recursive_triggers=False, execute_plugins=False)

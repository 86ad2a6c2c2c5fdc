"""How is an SQLite file handed to sqlite-utils, without what it loads beside it?"""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils.db import Database


def database(connection: sqlite3.Connection) -> Database:
    """sqlite-utils loads pandas where it is installed, which takes a second and is not needed."""
    hidden = "pandas" not in sys.modules
    if hidden:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        from sqlite_utils.db import Database  # noqa: PLC0415
    finally:
        if hidden:
            del sys.modules["pandas"]
    return Database(connection, recursive_triggers=False, execute_plugins=False)

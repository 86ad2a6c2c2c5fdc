"""How are nsys's folders of tables read, as `nsys export --type parquetdir` and `--type arrowdir` write them?

A folder has one file a table, with the names and the numbers of the SQLite export. The tables that are read are copied
into a SQLite file, which `timeline` reads: there is one reader of nsys, and the same rows give the same Timeline.

What differs from the SQLite export (2023.4): META_DATA_CAPTURE is missing, numbers without a sign may have 64 bits, and
the bytes of NVTX payloads (`binaryData`) are declared as text. Damaged files crash the libraries that read them (arro3
panics, nanoarrow has segmentation faults): the copy is made by a process of its own, with limited memory and output.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perfdoctor.errors import PerfdoctorError
from perfdoctor.model.timeline import Timeline
from perfdoctor.readers.nsys import timeline as nsys
from perfdoctor.readers.nsys.export import TIMEOUT_S, is_table_read, last_line
from perfdoctor.readers.nsys.tables import HOLDS_EVENTS, quoted
from perfdoctor.system import tool_process
from perfdoctor.system.memory import limited

#: Each folder has this table.
STRINGS = "StringIds"
PARQUET, ARROW = ".parquet", ".arrow"
#: SQLite needs up to 5 times the bytes of Parquet. A folder that would need this many times its bytes is refused.
_MOST_RATIO = 200
_FREE_BYTES = 1 << 30
_PAGE_BYTES = 4096
#: Address space of the process that copies, beyond what it writes.
_MOST_MEMORY_BYTES = 32 << 30
_INT64, _UINT64, _TEXT, _BYTES = "l", "L", "u", "z"


def is_parquet(folder: Path) -> bool:
    return _is_export(folder, PARQUET)


def is_arrow(folder: Path) -> bool:
    return _is_export(folder, ARROW)


def _is_export(folder: Path, ending: str) -> bool:
    """Does the folder hold files of this ending that are tables of nsys? With names, and with events or targets."""
    try:
        tables = [file.stem for file in folder.iterdir() if file.suffix == ending]
    except OSError:  # whoever reads it says why
        return False
    return (folder / f"{STRINGS}{ending}").is_file() and any(map(HOLDS_EVENTS.match, tables))


def read(folder: Path) -> Timeline:
    """One Timeline of a folder of tables. Raises PerfdoctorError where it cannot be read, or a package is missing."""
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as scratch:
        export = Path(scratch) / (folder.resolve().name or "export")
        _convert(folder.absolute(), export)
        return nsys.read(export)


def _convert(folder: Path, export: Path) -> None:
    """Write the tables of a folder into the SQLite file `export`, by another process."""
    if is_parquet(folder) and not is_arrow(folder) and (find_spec("arro3") is None or find_spec("arro3.io") is None):
        raise PerfdoctorError(
            f"`{folder.name}` holds Parquet files, and arro3, which reads them, is not installed",
            do='Run: pip install "perfdoctor[arrow]"',
        )
    again = "Copy the folder again in case it is incomplete, or export the report as SQLite: nsys export --type sqlite."
    code, printed, _ = tool_process.run(
        [*tool_process.own_command(__name__), str(folder), str(export)],
        environment=dict(os.environ), timeout_s=TIMEOUT_S,
        not_started="Check the installation of Python.", merged=True,
        too_slow=PerfdoctorError(f"`{folder.name}` was not read within {TIMEOUT_S // 60} minutes", do=again),
    )  # fmt: skip
    if code:
        # The last line of a traceback without the error's class, which a library may name by its own modules.
        line = last_line(printed.decode("utf-8", "replace"), folder)
        name, _, words = line.partition(": ")
        why = words if words and name.replace(".", "").replace("_", "").isalnum() else line
        why = "the library that reads it crashed" if code < 0 else why
        raise PerfdoctorError(f"`{folder.name}` is damaged or cannot be read ({why})", do=again)


# --- the process that copies -----------------------------------------------------------------------------------------


def main() -> None:
    """Copy the tables of the folder sys.argv[1] into the new SQLite file sys.argv[2]."""
    folder, export = map(Path, sys.argv[1:])
    ending = ARROW if is_arrow(folder) else PARQUET
    files = [file for file in sorted(folder.iterdir()) if file.suffix == ending and file.is_file()]
    files = [file for file in files if is_table_read(file.stem)]
    most_bytes = _FREE_BYTES + _MOST_RATIO * sum(file.stat().st_size for file in files)
    limited(_MOST_MEMORY_BYTES)

    from adbc_driver_manager import AdbcConnection, AdbcStatement  # noqa: PLC0415 readers load none of these packages
    from adbc_driver_sqlite import connect  # noqa: PLC0415

    with connect(str(export)) as database, AdbcConnection(database) as connection:
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"max_page_count={most_bytes // _PAGE_BYTES}"):
            with AdbcStatement(connection) as statement:
                statement.set_sql_query(f"PRAGMA {setting}")
                statement.execute_update()
        for file in files:
            _copy(file, connection)


def _copy(file: Path, connection: Any) -> None:
    """Make a table of the file's rows, in their order."""
    import nanoarrow  # noqa: PLC0415
    from adbc_driver_manager import AdbcStatement, StatementOptions  # noqa: PLC0415

    is_new = True
    with nanoarrow.c_array_stream(_batches(file)) as batches:
        schema = _as_sqlite_has_it(batches.get_schema())
        for batch in batches:
            with AdbcStatement(connection) as statement:
                target = {StatementOptions.INGEST_TARGET_TABLE.value: file.stem}
                mode = {StatementOptions.INGEST_MODE.value: f"adbc.ingest.mode.{'create' if is_new else 'append'}"}
                statement.set_options(**target, **mode)
                statement.bind(batch.__arrow_c_array__()[1], schema.__arrow_c_schema__())
                statement.execute_update()
            is_new = False
        if is_new:  # a table without rows shows that it was recorded
            with AdbcStatement(connection) as statement:
                columns = ", ".join(quoted(column.name) for column in schema.children)
                statement.set_sql_query(f"CREATE TABLE {quoted(file.stem)} ({columns})")
                statement.execute_update()


def _batches(file: Path) -> Any:
    """The file's rows as an Arrow stream."""
    if file.suffix == PARQUET:
        import arro3.io  # noqa: PLC0415

        return arro3.io.read_parquet(file)
    import nanoarrow  # noqa: PLC0415

    return nanoarrow.ArrayStream.from_path(file)


def _as_sqlite_has_it(schema: Any) -> Any:
    """The schema with 64-bit numbers that have a sign, and with payloads as bytes."""
    return schema.modify(children=[
        column.modify(format=_INT64) if column.format == _UINT64
        else column.modify(format=_BYTES) if (column.name, column.format) == ("binaryData", _TEXT)
        else column
        for column in schema.children
    ])  # fmt: skip

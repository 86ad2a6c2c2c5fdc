"""Which way reads the tables of a large export into columns fastest: sqlite3, ADBC or connectorx?

usage: python benchmarks/readers.py [MB ...]        (default 44 140)

The exports are grown (`grown.py`), and deleted afterwards. Of the tables of kernels and of the calls that launched them, the
columns are read that perfdoctor reads. sqlite3 and ADBC are read as perfdoctor does; connectorx takes part
where it is installed. Each way runs in a process of its own, so that its import and its peak of memory are its own, and on
one core: seconds are of the processor, which other programs hardly change. The cost of an import depends on whether its
files are in memory: run it twice.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import process_time
from urllib.parse import quote

import grown
import numpy as np

from perfdoctor.readers.nsys import tables as nsys_tables
from perfdoctor.readers.nsys.tables import Columns, Database

#: The columns that are read.
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "gridX", "gridY", "gridZ", "blockX",
        "blockY", "blockZ", "demangledName", "shortName",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
}  # fmt: skip
_ROUNDS = 3


def quoted(column: str) -> str:
    return f'"{column}"'


Read = Callable[[Path], list[Columns]]


def _as_perfdoctor_does(path: Path, worth: int) -> list[Columns]:
    nsys_tables.ROWS_WORTH_ADBC = worth
    with closing(Database.open(path)) as database:
        database.read_ahead(TABLES, {})
        found = [database.integers(name, columns) for name, columns in TABLES.items()]
        assert database.is_fast, "ADBC could not read it"
    return found


def with_sqlite3() -> Read:
    return lambda path: _as_perfdoctor_does(path, sys.maxsize)


def with_adbc() -> Read:
    import adbc_driver_sqlite  # noqa: PLC0415 the imports are measured
    import nanoarrow  # noqa: F401, PLC0415

    adbc_driver_sqlite.connect(":memory:").close()  # loads the driver
    return lambda path: _as_perfdoctor_does(path, 1)


def with_connectorx() -> Read:
    import connectorx  # noqa: PLC0415
    import pyarrow as pa  # noqa: F401, PLC0415

    def read(path: Path) -> list[Columns]:
        uri = f"sqlite://{quote(f'file:{quote(str(path))}?mode=ro&immutable=1', safe='')}"
        arrow = [connectorx.read_sql(uri, _sql(name), return_type="arrow") for name in TABLES]
        return [{name: table.column(name).to_numpy() for name in table.column_names} for table in arrow]

    return read


def _sql(table: str) -> str:
    cast = (f"CAST(coalesce({quoted(c)}, {nsys_tables.NONE}) AS INTEGER) AS {quoted(c)}" for c in TABLES[table])
    return f"SELECT {', '.join(cast)} FROM {table}"


def with_sqlite_alone() -> Read:
    """The floor: SQLite scans the tables, and one row of sums reaches Python."""

    def read(path: Path) -> list[Columns]:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        sums = {
            name: ", ".join(f"sum({quoted(column)} & 255)" for column in columns) for name, columns in TABLES.items()
        }
        rows = [connection.execute(f"SELECT {fields} FROM {name}").fetchone() for name, fields in sums.items()]
        return [{str(i): np.array([value]) for i, value in enumerate(row)} for row in rows]

    return read


WAYS: dict[str, Callable[[], Read]] = {
    "sqlite3": with_sqlite3,
    "ADBC": with_adbc,
    "connectorx": with_connectorx,
    "SQLite's own scan": with_sqlite_alone,
}


def measure(way: str, path: Path, rounds: int) -> None:
    """In a process of its own: seconds of the processor for the import, the best of some rounds, and the peak of memory."""
    begun = process_time()
    read = WAYS[way]()
    imported = process_time() - begun
    times = []
    for _ in range(rounds):
        begun = process_time()
        found = read(path)
        times.append(process_time() - begun)
        checksum = [int((column & 255).sum()) & 255 for table in found for column in table.values()]
        del found
    with Path("/proc/self/status").open() as status:  # not ru_maxrss, which a child inherits from its parent
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    print(json.dumps({"import": imported, "read": min(times), "peak": peak, "checksum": checksum}))


def rows_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as export:
        return sum(export.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES)


def _measured(way: str, path: Path, rounds: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", way, str(path), str(rounds)]
    environment = os.environ | {"PERFDOCTOR_JOBS": "1"}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def report(rows: int, found: dict[str, dict[str, float]]) -> None:
    assert len({str(figures["checksum"]) for figures in found.values()}) == 1, "the ways disagree"
    base = found["sqlite3"]
    print(f"{'way':<18}{'import s':>9}{'read s':>8}{'us a row':>10}{'times':>7}{'peak MB':>9}{'worth it from':>16}")
    for way, figures in found.items():
        saved = (base["read"] - figures["read"]) / rows
        extra = figures["import"] - base["import"]
        worth = f"{extra / saved:,.0f} rows" if saved > 0 and extra > 0.001 else ""
        print(
            f"{way:<18}{figures['import']:>9.3f}{figures['read']:>8.2f}{figures['read'] / rows * 1e6:>10.2f}"
            f"{base['read'] / figures['read']:>7.1f}{figures['peak'] / 1e6:>9.0f}{worth:>16}"
        )
    print()


def main(sizes_mb: Sequence[int]) -> int:
    ways = [way for way in WAYS if way != "connectorx" or importlib.util.find_spec("connectorx")]
    for size_mb in sizes_mb:
        source = grown.nsys_source()
        with tempfile.TemporaryDirectory() as folder:
            path = grown.grow(source, Path(folder) / "export.sqlite", grown.copies_for(source, size_mb))
            rows = rows_of(path)
            print(f"{path.stat().st_size / 1e6:,.0f} MB: {rows:,} rows of kernels and calls")
            rounds = _ROUNDS if size_mb < 500 else 1
            report(rows, {way: _measured(way, path, rounds) for way in ways})
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main([int(argument) for argument in sys.argv[1:]] or [44, 140]))

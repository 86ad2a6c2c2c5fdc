"""Which way reads the tables of a large export into columns fastest: sqlite3, ADBC or connectorx?

usage: python benchmarks/readers.py [MB ...]        (default 44 140)

The exports are generated, and deleted afterwards: kernels and the calls that launched them, with the columns that nsys
writes, of which those are read that perfdoctor reads. sqlite3 and ADBC are read as perfdoctor does; connectorx takes part
where it is installed. Each way runs in a process of its own, so that its import and its peak of memory are its own. The
cost of an import depends on whether its files are in memory: run it twice.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from urllib.parse import quote

import numpy as np

from perfdoctor.readers.nsys import tables as nsys_tables
from perfdoctor.readers.nsys.tables import Columns, Database


@dataclass(frozen=True)
class Table:
    """A table of an export: each column with the SQL of its value in row `i`, and the columns that are read."""

    columns: dict[str, str]
    read: tuple[str, ...]


_KERNELS, _CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
#: Two calls a kernel, of which the second launches it.
TABLES = {
    _KERNELS: Table(
        {
            "start": "i * 5000", "end": "i * 5000 + 3000", "deviceId": "0", "contextId": "1", "greenContextId": "NULL",
            "streamId": "7", "correlationId": "i * 2 + 1", "globalPid": "77 << 24", "demangledName": "i % 300",
            "shortName": "i % 200", "mangledName": "i % 300", "launchType": "NULL", "cacheConfig": "NULL",
            "registersPerThread": "32", "gridX": "i % 100 + 1", "gridY": "1", "gridZ": "1", "blockX": "128", "blockY": "1",
            "blockZ": "1", "staticSharedMemory": "0", "dynamicSharedMemory": "0", "localMemoryPerThread": "0",
            "localMemoryTotal": "100000", "gridId": "i", "sharedMemoryExecuted": "0", "graphNodeId": "NULL",
            "sharedMemoryLimitConfig": "1",
        },
        ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "gridX", "gridY", "gridZ", "blockX",
         "blockY", "blockZ", "demangledName", "shortName"),
    ),
    _CALLS: Table(
        {
            "start": "i * 2500", "end": "i * 2500 + 2000", "eventClass": "0", "globalTid": "(77 << 24) + 77",
            "correlationId": "i", "nameId": "i % 40", "returnValue": "0",
        },
        ("start", "end", "globalTid", "correlationId", "nameId"),
    ),
}  # fmt: skip
#: Of one kernel and its two calls in the file.
_BYTES_A_KERNEL = 134
_ROUNDS = 3


def make(path: Path, kernels: int) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
    for name, rows in ((_KERNELS, kernels), (_CALLS, 2 * kernels)):
        columns = TABLES[name].columns
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{quoted(column)} INTEGER' for column in columns)})")
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows})"
        connection.execute(f"INSERT INTO {name} {numbers} SELECT {', '.join(columns.values())} FROM n")
    connection.commit()
    connection.close()


def quoted(column: str) -> str:
    return f'"{column}"'


Read = Callable[[Path], list[Columns]]


def _as_perfdoctor_does(path: Path, worth: int) -> list[Columns]:
    nsys_tables.ROWS_WORTH_ADBC = worth
    with closing(Database.open(path)) as database:
        found = [database.integers(name, table.read) for name, table in TABLES.items()]
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
    cast = (f"CAST(coalesce({quoted(c)}, {nsys_tables.NONE}) AS INTEGER) AS {quoted(c)}" for c in TABLES[table].read)
    return f"SELECT {', '.join(cast)} FROM {table}"


def with_sqlite_alone() -> Read:
    """The floor: SQLite scans the tables, and one row of sums reaches Python."""

    def read(path: Path) -> list[Columns]:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
        sums = {name: ", ".join(f"sum({quoted(column)})" for column in table.read) for name, table in TABLES.items()}
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
    """In a process of its own: seconds of the import, the best of some rounds, and the peak of memory."""
    begun = perf_counter()
    read = WAYS[way]()
    imported = perf_counter() - begun
    times = []
    for _ in range(rounds):
        begun = perf_counter()
        found = read(path)
        times.append(perf_counter() - begun)
        checksum = [int(column.sum()) for table in found for column in table.values()]
        del found
    with Path("/proc/self/status").open() as status:  # not ru_maxrss, which a child inherits from its parent
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    print(json.dumps({"import": imported, "read": min(times), "peak": peak, "checksum": checksum}))


def _measured(way: str, path: Path, rounds: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", way, str(path), str(rounds)]
    figures: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
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
        kernels = size_mb * 1_000_000 // _BYTES_A_KERNEL
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "export.sqlite"
            make(path, kernels)
            print(f"{path.stat().st_size / 1e6:,.0f} MB: {kernels:,} kernels and {2 * kernels:,} calls")
            rounds = _ROUNDS if size_mb < 500 else 1
            report(3 * kernels, {way: _measured(way, path, rounds) for way in ways})
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main([int(argument) for argument in sys.argv[1:]] or [44, 140]))

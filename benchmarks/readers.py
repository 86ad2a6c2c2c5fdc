"""Which way reads a wide SQLite table into columns fastest? sqlite3, the ADBC driver and connectorx, in one run.

usage: python benchmarks/readers.py [ROWS]        (default 500,000; the table of kernels of one long recording)

Each way runs in a process of its own, so that its import and its peak of memory are its own. Read-only and unchanged
files are part of the job: how each way opens the file is the way that perfdoctor would use. The cost of an import depends on
whether its files are in memory: run it twice.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from time import perf_counter
from urllib.parse import quote

import numpy as np

WANTED = (
    "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "gridX", "gridY", "gridZ", "blockX",
    "blockY", "blockZ", "demangledName", "shortName",
)  # fmt: skip
OTHERS = (
    "contextId", "greenContextId", "mangledName", "launchType", "cacheConfig", "registersPerThread",
    "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread", "localMemoryTotal", "gridId",
    "sharedMemoryExecuted", "graphNodeId", "sharedMemoryLimitConfig",
)  # fmt: skip
ROUNDS = 3


def make(path: Path, rows: int) -> None:
    columns = (*WANTED, *OTHERS)
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE k ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO k VALUES ({', '.join('?' * len(columns))})", map(_row, range(rows)))
    connection.close()


def _row(i: int) -> tuple[int | None, ...]:
    wanted = (i * 5_000, i * 5_000 + 3_000, 0, 7, i, 77 << 24, i % 100 + 1, 1, 1, 128, 1, 1, i % 300, i % 200)
    return (*wanted, 1, None, i % 300, None, None, 32, 0, 0, 0, 100_000, i, 0, None, 1)


def _uri(path: str) -> str:
    return f"file:{quote(path)}?mode=ro&immutable=1"


def _sql() -> str:
    fields = ", ".join(f'CAST(coalesce("{name}", {-(1 << 63)}) AS INTEGER) AS "{name}"' for name in WANTED)
    return f"SELECT {fields} FROM k"


def with_sqlite3() -> Callable[[str], int]:
    def read(path: str) -> int:
        parts = []
        connection = sqlite3.connect(_uri(path), uri=True)
        cursor = connection.execute(_sql())
        while rows := cursor.fetchmany(20_000):
            flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(WANTED))
            parts.append(flat.reshape(-1, len(WANTED)).T)
        return int(np.concatenate(parts, axis=1)[0].sum())

    return read


def with_adbc() -> Callable[[str], int]:
    import adbc_driver_sqlite.dbapi as adbc  # noqa: PLC0415 the import is measured
    import pyarrow as pa  # noqa: F401, PLC0415

    def read(path: str) -> int:
        with adbc.connect(_uri(path)) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
            cursor.execute(_sql())
            table = cursor.fetch_arrow_table()
        return int({name: table.column(name).to_numpy() for name in WANTED}["start"].sum())

    return read


def with_connectorx() -> Callable[[str], int]:
    import connectorx  # noqa: PLC0415 the import is measured
    import pyarrow as pa  # noqa: F401, PLC0415

    def read(path: str) -> int:
        table = connectorx.read_sql(f"sqlite://{quote(_uri(path), safe='')}", _sql(), return_type="arrow")
        return int({name: table.column(name).to_numpy() for name in WANTED}["start"].sum())

    return read


def with_sqlite_alone() -> Callable[[str], int]:
    """The floor: SQLite scans the table, and one row reaches Python."""

    def read(path: str) -> int:
        sums = ", ".join(f'sum("{name}" & 1)' for name in WANTED[1:])
        return int(sqlite3.connect(_uri(path), uri=True).execute(f"SELECT sum(start), {sums} FROM k").fetchone()[0])

    return read


WAYS: dict[str, Callable[[], Callable[[str], int]]] = {
    "sqlite3 + fetchmany": with_sqlite3,
    "ADBC SQLite driver": with_adbc,
    "connectorx": with_connectorx,
    "SQLite's own scan": with_sqlite_alone,
}


def measure(way: str, path: str) -> None:
    """In a process of its own: seconds of the import, the best of some rounds, and the peak of memory."""
    begun = perf_counter()
    read = WAYS[way]()
    imported = perf_counter() - begun
    times = []
    for _ in range(ROUNDS):
        begun = perf_counter()
        checksum = read(path)
        times.append(perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"import": imported, "read": min(times), "peak": peak, "checksum": checksum}))


def main() -> int:
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], sys.argv[3])
        return 0
    rows = int(sys.argv[1]) if sys.argv[1:] else 500_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.sqlite"
        make(path, rows)
        print(
            f"{rows:,} rows, {len(WANTED)} of {len(WANTED) + len(OTHERS)} columns, {path.stat().st_size / 1e6:.0f} MB"
        )
        report(rows, {way: _measured(way, path) for way in WAYS})
    return 0


def _measured(way: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", way, str(path)], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def report(rows: int, found: dict[str, dict[str, float]]) -> None:
    assert len({figures["checksum"] for figures in found.values()}) == 1, "the ways disagree"
    base = found["sqlite3 + fetchmany"]
    print(f"{'way':<22}{'import s':>9}{'read s':>8}{'us a row':>10}{'ratio':>7}{'peak MB':>9}{'worth it from':>16}")
    for way, figures in found.items():
        saved = (base["read"] - figures["read"]) / rows
        worth = (
            f"{(figures['import'] - base['import']) / saved:,.0f} rows"
            if saved > 0 and figures["import"] > 0.01
            else ""
        )
        print(
            f"{way:<22}{figures['import']:>9.2f}{figures['read']:>8.2f}{figures['read'] / rows * 1e6:>10.2f}"
            f"{figures['read'] / base['read']:>7.2f}{figures['peak'] / 1e6:>9.0f}{worth:>16}"
        )


if __name__ == "__main__":
    sys.exit(main())

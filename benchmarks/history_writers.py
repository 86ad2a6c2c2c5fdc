"""Does a history lose runs? Eight writers at once, and writers that are killed in the middle.

    python benchmarks/history_writers.py [--kills 200] [--runs 1000] [--folder DIR]

Exits with 1 where a run that was reported as stored is not there, or a lock is shown.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from history.histories import writer  # noqa: E402

WRITERS = 8


def started(file: Path, count: int, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", writer(file, count, first)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stored(file: Path) -> set[str]:
    with sqlite3.connect(file) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        incomplete = connection.execute(
            "select count(*) from runs where (select count(*) from parts where run_id = id) != 2"
        ).fetchone()
        assert incomplete == (0,), "a run was stored in part"
        return {row[0] for row in connection.execute("select id from runs")}


def at_once(folder: Path, runs: int) -> bool:
    file, began = folder / "at_once.db", time.monotonic()
    writers = [started(file, runs, 10**8 + 10**5 * number) for number in range(WRITERS)]
    outputs = [each.communicate() for each in writers]
    reported = {line for output, _ in outputs for line in output.split()}
    errors = "".join(error for _, error in outputs)
    there = stored(file)
    seconds = time.monotonic() - began
    size = file.stat().st_size / max(len(there), 1)
    print(
        f"{WRITERS} writers: {len(reported):,} of {WRITERS * runs:,} reported, {len(there):,} stored, {seconds:.0f} s, {size:,.0f} bytes a run"
    )
    print(errors, end="")
    return reported == there and len(there) == WRITERS * runs and not errors


def killed(folder: Path, kills: int) -> bool:
    """Each writer goes on in the file that the one before it was killed in."""
    file, chance, reported, lost = folder / "killed.db", random.Random(5), set(), 0
    for number in range(kills):
        process = started(file, 100_000, 10**8)
        first = process.stdout.readline() if number % 4 else ""  # every fourth is killed at any moment of its start
        time.sleep(chance.uniform(0, 0.05 if first else 0.4))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        reported |= set((first + rest).rpartition("\n")[0].split())
        lost = len(reported - stored(file)) if file.exists() else len(reported)
        if lost:
            break
    print(f"kill -9, {kills} times: {len(reported):,} runs reported as stored, {lost} lost")
    return not lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where the files are made")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as name:
        good = [killed(Path(name), chosen.kills), at_once(Path(name), chosen.runs)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()

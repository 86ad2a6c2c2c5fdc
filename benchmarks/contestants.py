"""Who diagnoses, sums up or only reads a recording, and how is each called?

Commands are measured whole, as a user waits for them. Libraries are called from a few lines of Python, and their imports are
not counted: what is compared with perfdoctor, whose imports are, is a lower bound of what it saves. Peers are installed from
PyPI into environments of their own under .cache/bench/; who cannot be had is left out, and it is said.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from measured import MARKS, Taken, run, run_marked

_ROOT = Path(__file__).parents[1]
_ENVIRONMENTS = _ROOT / ".cache" / "bench"
#: The page names the versions. The successor of the first, traceinsight 0.6.1, took 1.09 times as long to load 214 MB.
HTA, NSYS_AI = "HolisticTraceAnalysis==0.5.0", "nsys-ai==0.3.0"
#: With pandas 3 it fails on traces with few correlations; it is as fast with 2.
_ITS_PANDAS = "pandas<3"
#: What nsys-ai otherwise fetches at its first call, and tries for twelve seconds to fetch where there is no network.
_DUCKDB = ("duckdb==1.5.5", "duckdb-extensions==1.5.5", "duckdb-extension-sqlite-scanner==1.5.5")


def _nothing(file: Path) -> None:
    """Nothing is left from before."""


@dataclass(frozen=True)
class Contestant:
    """`command`: whole, or a Python program with marks. `before`: what is removed first, so that nothing is found ready."""

    name: str
    command: Callable[[Path], Sequence[str | Path]]
    is_marked: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[Path], None] = _nothing

    def measured(self, file: Path) -> dict[str, Taken]:
        """By the name of a row. CommandError where it cannot."""
        self.before(file)
        if self.is_marked:
            return {f"{self.name}{part}": taken for part, taken in run_marked(self.command(file), file.parent).items()}
        return {self.name: run(self.command(file), file.parent, self.environment)}


# --- perfdoctor ----------------------------------------------------------------------------------------------------


def perfdoctor(jobs: int, *, with_report: bool = False) -> Contestant:
    """From the file to the diagnosis in the terminal, and to the HTML report."""
    return Contestant(
        f"perfdoctor, {jobs} core{'s' if jobs > 1 else ''}{', with the HTML report' if with_report else ''}",
        lambda file: [
            *(sys.executable, "-m", "perfdoctor.cli.main", "analyze", file),
            *(["--html", file.with_suffix(".html")] if with_report else ["--no-html"]),
        ],
        environment={"PERFDOCTOR_JOBS": str(jobs)},
    )


# --- peers ---------------------------------------------------------------------------------------------------------

_HTA = """
import logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
begun()
traces = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
mark("load")
traces.get_temporal_breakdown(visualize=False)
mark("load and temporal breakdown")
report()
"""


def hta() -> Iterator[Contestant]:
    if python := _environment("hta", [HTA, _ITS_PANDAS], "import hta.trace_analysis"):
        yield _program("HolisticTraceAnalysis, ", _HTA, python)


def nsys_ai() -> Iterator[Contestant]:
    extension = "import duckdb_extensions; duckdb_extensions.import_extension('sqlite_scanner')"
    if python := _environment("nsys-ai", [NSYS_AI, *_DUCKDB], f"import nsys_ai; {extension}"):
        home = {"HOME": str(python.parents[1] / "home")}
        for name, before in (("nsys-ai diagnose", _without_its_cache), ("nsys-ai diagnose, again", _nothing)):
            yield Contestant(
                name, lambda file: [python.with_name("nsys-ai"), "diagnose", file], environment=home, before=before
            )


def _without_its_cache(file: Path) -> None:
    for made in (file.with_suffix(".nsys-cache"), file.parent / ".nsys-ai"):
        shutil.rmtree(made, ignore_errors=True)


def nsys() -> str | None:
    return os.environ.get("PERFDOCTOR_NSYS") or shutil.which("nsys")


def nsys_stats() -> Iterator[Contestant]:
    if tool := nsys():
        yield Contestant("nsys stats", lambda file: [tool, "stats", file])


def versions() -> Iterator[str]:
    """Of the peers that are here."""
    for name, package in (("hta", HTA), ("nsys-ai", NSYS_AI)):
        if (_ENVIRONMENTS / name).is_dir():
            yield package.replace("==", " ")
    if tool := nsys():
        said = subprocess.run([tool, "--version"], check=False, capture_output=True, text=True).stdout
        yield from (f"Nsight Systems {number}" for number in re.findall(r"\d+(?:\.\d+)+", said)[:1])


def _environment(name: str, packages: Sequence[str], works: str) -> Path | None:
    """The Python of an environment with these packages; None where they cannot be had. `works`: what must run in it."""
    folder = _ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        (folder / "home").mkdir()
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=False, stderr=subprocess.DEVNULL)
    home = {**os.environ, "HOME": str(folder / "home")}
    if subprocess.run([python, "-c", works], check=False, capture_output=True, env=home).returncode == 0:
        return python
    print(f"{packages[0]} could not be installed: without it.")
    return None


# --- a few lines of Python, and the floor ----------------------------------------------------------------------------

_JSON_AND_PANDAS = """
import json
import pandas as pd
begun()
with open(sys.argv[1]) as file:
    events = pd.DataFrame(json.load(file)["traceEvents"])
events[events["cat"] == "kernel"].groupby("name")["dur"].sum()
mark("json and pandas, sums by kernel")
report()
"""
#: The fields that any diagnosis needs, and no column filled from them.
_TYPED_DECODE = """
import msgspec
class Args(msgspec.Struct):
    correlation: int | str | None = None
    stream: int | str | None = None
    device: int | str | None = None
class Event(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: Args | None = None
class Trace(msgspec.Struct):
    traceEvents: list[Event]
begun()
trace = msgspec.json.decode(open(sys.argv[1], "rb").read(), type=Trace)
mark("floor: typed decode with msgspec, 1 core")
report()
"""
_RAW_SCAN = """
import msgspec
class Trace(msgspec.Struct):
    traceEvents: list[msgspec.Raw]
begun()
trace = msgspec.json.decode(open(sys.argv[1], "rb").read(), type=Trace)
mark("floor: scan for the ends of events, 1 core")
report()
"""
_SQLITE_AND_PANDAS = """
import sqlite3
import pandas as pd
begun()
export = sqlite3.connect(sys.argv[1])
tables = ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET")
frames = {table: pd.read_sql(f"SELECT * FROM CUPTI_ACTIVITY_KIND_{table}", export) for table in tables}
names = pd.read_sql("SELECT * FROM StringIds", export).set_index("id")["value"]
kernels = frames["KERNEL"]
(kernels["end"] - kernels["start"]).groupby(kernels["demangledName"].map(names)).sum()
mark("sqlite3 and pandas, sums by kernel")
report()
"""
#: Of the tables that a diagnosis reads whole, the columns it cannot do without.
_SQLITE_SCAN = """
import sqlite3
begun()
export = sqlite3.connect(sys.argv[1])
for table, columns in {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "deviceId", "streamId", "correlationId", "demangledName"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("start", "end", "deviceId", "streamId", "correlationId", "bytes"),
    "NVTX_EVENTS": ("start", "end", "globalTid"),
}.items():
    sums = ", ".join(f'sum("{column}" & 255)' for column in columns)
    export.execute(f"SELECT {sums} FROM {table}").fetchone()
mark("floor: SQLite's scan of the columns, 1 core")
report()
"""


def _program(name: str, text: str, python: Path | str = sys.executable) -> Contestant:
    return Contestant(name, lambda file: [python, "-c", MARKS + text, file], is_marked=True)


def _ours(jobs: int) -> list[Contestant]:
    return [perfdoctor(number) for number in sorted({jobs, 1}, reverse=True)]


def of_trace(jobs: int) -> list[Contestant]:
    """On a trace of torch.profiler; perfdoctor on all cores first."""
    return [
        *_ours(jobs), *hta(), _program("", _JSON_AND_PANDAS), _program("", _TYPED_DECODE),
        _program("", _RAW_SCAN),
    ]  # fmt: skip


def of_export(jobs: int) -> list[Contestant]:
    """On a SQLite export of Nsight Systems; perfdoctor on all cores first."""
    return [
        *_ours(jobs), *nsys_ai(), *nsys_stats(), _program("", _SQLITE_AND_PANDAS),
        _program("", _SQLITE_SCAN),
    ]  # fmt: skip

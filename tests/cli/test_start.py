"""Does the program load what it needs, and nothing else? Times would say the same, with the noise of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from folders import ROOT

from perfdoctor import entry

TRACE = ROOT / "fixtures" / "healthy" / "torch" / "rank0.pt.trace.json.gz"
#: What a command line never needs, with what comes along with it.
NEVER = {"asyncio", "email", "http", "multiprocessing", "pydantic", "ssl", "torch", "unittest", "xml"}
#: What is loaded by commands that work, not by those that only speak.
LATER = {"jinja2", "numpy", "perfdoctor.detectors", "perfdoctor.readers", "perfdoctor.report.html", "rich"}
PROGRAM = """
import json, os, sys
from perfdoctor.cli.main import main
try:
    main()
finally:
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    known = {"modules": sorted(sys.modules), "threads": threads, "environment": dict(os.environ)}
    print(json.dumps(known), file=sys.stderr)
"""


def state_after(*arguments: str, folder: Path) -> dict[str, object]:
    """Of a process in which the program ran: its modules, threads and environment."""
    kept = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env={**kept, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


def loaded(state: dict[str, object], names: set[str]) -> list[str]:
    return sorted(names & set(state["modules"]))


@pytest.mark.parametrize("line", [["--help"], ["--version"], ["analyze", "--help"], ["run", "--help"]], ids=" ".join)
def test_help_needs_no_analysis(line: list[str], tmp_path: Path):
    assert loaded(state_after(*line, folder=tmp_path), NEVER | LATER) == []


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The second one: the first keeps for the user what need not be made twice."""
    folder = tmp_path_factory.mktemp("start")
    states = [state_after("analyze", str(TRACE), folder=folder) for _ in range(2)]
    return states[-1]


def test_an_analysis_loads_what_it_uses(analysis: dict[str, object]):
    assert loaded(analysis, NEVER | {"tomllib", "tomli"}) == []


def test_numpy_starts_no_threads_that_spin(analysis: dict[str, object]):
    """Nor does the environment change, which programs that we start inherit."""
    assert analysis["threads"] == 1
    assert "OPENBLAS_NUM_THREADS" not in analysis["environment"]


def test_packages_of_another_python_in_pythonpath_do_not_keep_the_program_from_being_started(tmp_path):
    for name in ("typing_extensions", "typer", "click", "numpy", "msgspec", "rich"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('of another Python')\n")
    seen = "import os; print(os.environ['PYTHONPATH'].split(os.pathsep)[-1]); raise SystemExit(7)"
    words = ["run", "-o", tmp_path / "run", "-q", "--no-save", "--", sys.executable, "-c", seen]
    done = subprocess.run(
        [sys.executable, "-m", "perfdoctor", *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[0]) == (7, str(tmp_path))
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


def test_what_pythonpath_gives_comes_behind_our_own_packages_but_for_our_own_folder():
    own = str(Path(entry.__file__).parents[1])
    path = ["/script", "/modules", own, "/python/site-packages"]
    assert entry.own_first(path, f"/modules{os.pathsep}{own}") == ["/script", own, "/python/site-packages", "/modules"]
    assert entry.own_first(path, "") == path
